package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/scenarios/traffic/insim"
)

// Calls must notice data that is not what the other end made up.
func TestCallsCheckEveryByte(t *testing.T) {
	s, err := choose(scenarios(), []string{"rc-cm/clean"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFabric(&s[0], 1, 10, &flaws{}, tap{})
	if err != nil {
		t.Fatal(err)
	}
	var pipe [2]traffic.Exchange
	pipe[0], pipe[1] = insim.Pipe(f.world)
	a, b := newCall(f, &s[0], [2]int{0, 1}, pipe, 1, 10)
	b.seed ^= 1 << 40
	f.world.Go("a", a.run)
	f.world.Go("b", b.run)
	if err := f.world.RunPrograms(); err == nil || !strings.Contains(err.Error(), "call 0, message 0: received") {
		t.Errorf("other data than expected: %v", err)
	}
	if a, b := a.tally(), b.tally(); a.asked != 10 || a.delivered+b.delivered != 0 {
		t.Errorf("tallies %+v, %+v", a, b)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

// What an end says depends on the seed, the side, the call and the message.
func TestCallsSayDifferentThings(t *testing.T) {
	seen := map[string]bool{}
	say := func(seed, side uint64, i, k int) {
		b := make([]byte, 64)
		(&callEnd{seed: seed}).fill(b, side, i, k)
		seen[string(b)] = true
	}
	say(1, 0, 0, 0)
	say(2, 0, 0, 0)
	say(1, 1, 0, 0)
	say(1, 0, 1, 0)
	say(1, 0, 0, 1)
	if len(seen) != 5 {
		t.Errorf("%d different messages, want 5", len(seen))
	}
}

// Wireshark must read the headers of whatever is captured by default: whole
// packets of one scenario, and of several enough for headers and all of a
// management datagram.
func TestCapturesAreDissected(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	dissect := func(patterns, options []string) string {
		file := filepath.Join(t.TempDir(), "x.pcapng")
		args := append([]string{"run", "--seed", "1", "--messages", "5", "--pcap", file}, patterns...)
		if code, out, stderr := call(t, args...); code != exitOK {
			t.Fatalf("exit code %d\n%s%s", code, out, stderr)
		}
		out, err := exec.Command(tshark, append([]string{"-r", file}, options...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, pattern := range []string{"rc/clean", "rc-cm/clean"} {
		if text := dissect([]string{pattern}, nil); text == "" || strings.Contains(text, "Malformed") {
			t.Errorf("%s: malformed packets, or none:\n%.2000s", pattern, text)
		}
	}
	several := []string{"rc/clean", "rc-cm/clean"}
	text := dissect(several, nil)
	for _, want := range []string{"ConnectRequest", "ConnectReply", "ReadyToUse", "DisconnectRequest"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%.2000s", want, text)
		}
	}
	for line := range strings.Lines(dissect(several, []string{"-T", "fields", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn"})) {
		if opcode, psn, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); opcode == "" || psn == "" {
			t.Fatalf("a packet without a transport header: %q", line)
		}
	}
}
