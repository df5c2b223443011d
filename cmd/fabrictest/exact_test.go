package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExactLossesCostExactlyThoseResends(t *testing.T) {
	for _, messages := range []int{1, 2, 30} {
		s := exactScenario(t)
		o := options{seed: 9, messages: messages, program: goRun}
		out, err := o.play(s, nil)
		if err != nil || !out.OK || out.PacketsLost != 3 || out.Resent != 3 || out.Delivered != 2*messages {
			t.Errorf("%d messages: %+v, %v", messages, out, err)
		}
	}
}

// Packets that are lost beside the three are not excused.
func TestExactSeesLossesThatAreTooMany(t *testing.T) {
	s := exactScenario(t)
	o := options{seed: 9, messages: 30, program: goRun}
	s.network.impair = networkNamed(t, "loss").impair
	s.network.impair[0].LossPPM = 200_000
	out, err := o.play(s, nil)
	if err != nil || out.OK || !strings.Contains(out.Problem, "want 3 of each") {
		t.Errorf("%+v, %v", out, err)
	}
}

// Events that never happen are a failure: the scenario has not shown what it
// claims.
func TestUnfiredEventFails(t *testing.T) {
	s := exactScenario(t)
	f, err := newFabric(s, 1, 1000, &flaws{}, tap{}) // events for packet 1000 of 10
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.exchange(s, 10); err != nil {
		t.Fatal(err)
	}
	err = f.unfired()
	if err == nil || !strings.Contains(err.Error(), "host0: event drop never happened: no packet with PSN 0x1003e7 was sent") ||
		!strings.Contains(err.Error(), "host1: event drop never happened: no packet with PSN 0x8003e7 was sent 2 times") {
		t.Errorf("unfired: %v", err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

func TestSnapLenMakesCapturesSmall(t *testing.T) {
	size := map[string]int64{}
	for _, snap := range []string{"60", "128", "0"} {
		file := filepath.Join(t.TempDir(), "x.pcapng")
		if code, out, stderr := call(t, "run", "--seed", "1", "--messages", "50", "uc/clean", "--pcap", file, "--snaplen", snap); code != exitOK {
			t.Fatalf("exit code %d\n%s%s", code, out, stderr)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		size[snap] = info.Size()
	}
	if size["60"] >= size["128"] || 10*size["128"] > size["0"] {
		t.Errorf("sizes by snap length: %v", size)
	}
}

func exactScenario(t *testing.T) *scenario {
	t.Helper()
	some, err := choose(scenarios(), []string{"rc/exact"})
	if err != nil {
		t.Fatal(err)
	}
	return &some[0]
}

func networkNamed(t *testing.T, id string) *network {
	t.Helper()
	for _, n := range networks() {
		if n.id == id {
			return &n
		}
	}
	t.Fatalf("no network %s", id)
	return nil
}
