package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// With other NICs, what makes sense runs, and the rest is skipped with a reason: no
// failure, also where a tier was named.
func TestRunWithOtherNICs(t *testing.T) {
	code, out, stderr := call(t, "run", "pingpong", "clean-ud", "slow-receiver", "--on", "sim", "--provider", "softiwarp", "--json")
	var run report.Run
	if err := json.Unmarshal([]byte(out), &run); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %q: %v\n%s", code, stderr, err, out)
	}
	for _, r := range run.Scenarios {
		want, why := report.Skipped, map[string]string{"clean-ud": "soft-iWARP has no ud", "slow-receiver": "receivers post late"}[r.Name]
		if r.Name == "pingpong" {
			want = report.Passed
			if r.Ranks[0].Counters["conns_established"] != 1 {
				t.Errorf("not over iWARP: %v", r.Ranks[0].Counters)
			}
		}
		if r.Verdict != want || !strings.Contains(r.Reason, why) || !strings.Contains(r.Replay, "--provider softiwarp") || r.Provider != "softiwarp" {
			t.Errorf("%s: %s, %q; repeated by %s", r.Name, r.Verdict, r.Reason, r.Replay)
		}
	}
	if !strings.Contains(run.Command, "--provider softiwarp") {
		t.Errorf("the run is repeated by %s", run.Command)
	}
}

// Over datagrams, what names no service has the reliable one, and what names a
// connection is not run as something else.
func TestRunOverDatagrams(t *testing.T) {
	code, out, stderr := call(t, "run", "pingpong", "clean-ud", "slow-receiver", "clean-rc", "qp-error-reconnect", "--on", "sim", "--provider", "dgiwarp", "--json")
	var run report.Run
	if err := json.Unmarshal([]byte(out), &run); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %q: %v\n%s", code, stderr, err, out)
	}
	for _, r := range run.Scenarios {
		want, why := report.Passed, map[string]string{
			"clean-rc":           "datagram-iWARP has no rc: there are no connections, and its reliable service is rd",
			"qp-error-reconnect": "it reconnects, and datagram-iWARP has no connections",
		}[r.Name]
		if why != "" {
			want = report.Skipped
		}
		if r.Verdict != want || r.Reason != why || r.Provider != "dgiwarp" {
			t.Errorf("%s with %s: %s, %q", r.Name, r.Provider, r.Verdict, r.Reason)
			continue
		}
		if reliable := r.Name == "pingpong" || r.Name == "slow-receiver"; want == report.Passed && reliable != (r.Ranks[0].Counters["rd_peers_made"] == 1) {
			t.Errorf("%s: %v", r.Name, r.Ranks[0].Counters)
		}
	}
}

// A run with other NICs is repeated with them, from the run's own copy.
func TestReplayKeepsTheProvider(t *testing.T) {
	dir := t.TempDir() + "/run"
	if code, out, stderr := call(t, "run", "clean-rc", "--on", "sim", "--provider", "softiwarp", "--capture", "none", "--out", dir); code != exitOK {
		t.Fatalf("%s%s", out, stderr)
	}
	if code, out, _ := call(t, "replay", dir, "--all", "--capture", "none"); code != exitOK || !strings.Contains(out, "the same in every figure") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestDefectConcernsScenariosWithItsNICs(t *testing.T) {
	code, out, stderr := call(t, "run", "pingpong", "iwarp-killed", "--on", "sim", "--defect", "MSSRoundedDown", "--json")
	var run report.Run
	if err := json.Unmarshal([]byte(out), &run); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %q: %v\n%s", code, stderr, err, out)
	}
	for _, r := range run.Scenarios {
		if want := map[string]report.Verdict{"pingpong": report.Skipped, "iwarp-killed": report.Passed}[r.Name]; r.Verdict != want {
			t.Errorf("%s: %s, %s", r.Name, r.Verdict, r.Reason)
		}
	}
}

func TestListSaysWhatMakesNoSense(t *testing.T) {
	_, out, _ := call(t, "list", "scenarios", "pingpong", "clean-ud", "--provider", "softiwarp")
	for _, want := range []string{"pingpong  Ping-pong", "1 scenarios.", "1 make no sense with these NICs:\nclean-ud  soft-iWARP has no ud\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	_, out, _ = call(t, "list", "scenarios", "iwarp-clean", "clean-ud", "--json")
	var all []lab.ListedScenario
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range all {
		if want := map[string]string{"iwarp-clean": "softiwarp", "clean-ud": "softroce"}[s.Name]; s.Provider != want || s.Unfit != "" {
			t.Errorf("%+v", s)
		}
	}
}
