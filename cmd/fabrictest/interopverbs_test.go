package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/interop"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

func TestInteropVerbsWrongCalls(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("kernel labs need Linux")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, c := range []struct{ words, says string }{
		{"interop verbs", "--guest: name the device that the guest is to have: rxe, siw or siw-crc"},
		{"interop verbs --guest mlx5", "--guest mlx5: a kernel has rxe, siw or siw-crc"},
		{"interop verbs --guest rxe --loss 5", "loss=5: 5 is not a percentage"},
		{"interop verbs --guest rxe --connections -1", "--connections -1"},
		{"interop verbs writ --guest rxe", "no exchange matches \"writ\""},
		{"interop verbs ud-send --guest siw", "no exchange matches \"ud-send\""},
		{"interop verbs --guest rxe --impair los=5%", "los=5%: unknown key; did you mean loss?"},
		{"interop verbs --guest rxe --agent-program /no/such/program --impair delay=1ms", "/no/such/program"},
	} {
		code, _, stderr := call(t, strings.Fields(c.words)...)
		if code != exitUsage || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d, %q; want %q", c.words, code, stderr, c.says)
		}
	}
	code, stdout, _ := call(t, strings.Fields("interop verbs send/*/hand/ipv6 --list --guest rxe")...)
	if code != exitOK || !strings.Contains(stdout, "send/theirs/hand/ipv6/4097\n") || strings.Contains(stdout, "ipv4") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}

func TestResourcesOfAGuest(t *testing.T) {
	got, err := parseResources("1: rxe0: pd 2 cq 3 qp 4 cm_id 0 mr 7 ctx 1 srq 2 \n")
	if err != nil || len(got) != 7 || got["mr"] != 7 || got["pd"] != 2 || got["cm_id"] != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for _, line := range []string{"", "1: rxe0:", "1: rxe0: pd two"} {
		if got, err := parseResources(line); err == nil {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// A failure is told with what differed and with the command that repeats it, and is in
// the file.
func TestInteropReport(t *testing.T) {
	var out bytes.Buffer
	o := &interopVerbs{program: "fabrictest", loss: "5%", seed: 7}
	o.guest.kind, o.guest.series = string(guest.RXE), "6.12"
	r := newInteropReport(&out, &interop.Suite{Ours: &interop.End{Name: "softroce"}, Theirs: &interop.End{Name: "rxe"}}, o)
	one := interop.Case{Op: "write", By: interop.Theirs, Method: interop.ByModify, Family: interop.IPv6, Size: 0}
	two := one
	two.Size = 4097
	r.add(interop.Result{Case: one, Verdict: interop.Pass, Took: time.Second})
	r.add(interop.Result{Case: two, Verdict: interop.Fail, Why: "1 of 4097 octets"})
	r.endExchanges()
	for _, want := range []string{
		"write/theirs/hand/ipv6                1.0 s  0 ok, 4097 fail\n", "write/theirs/hand/ipv6/4097: 1 of 4097 octets\n",
		"again: fabrictest interop verbs write/theirs/hand/ipv6/4097 --guest rxe --kernel 6.12 --loss 5% --seed 7\n",
		"2 exchanges in 0 s: 1 passed, 1 failed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	if r.ok() {
		t.Error("all is well")
	}
	path := filepath.Join(t.TempDir(), "results.json")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	var back interopReport
	if err != nil || json.Unmarshal(text, &back) != nil || len(back.Exchanges) != 2 || back.Exchanges[1].Verdict != interop.Fail || back.Exchanges[1].Command == "" {
		t.Errorf("%v\n%s", err, text)
	}
	r.Counts = map[string]int{"pass": 1, "known": 1}
	if !r.ok() {
		t.Error("what is known is a failure")
	}
	if r.Connections = (&interop.ConnectionsResult{Leaked: []string{"one"}}); r.ok() {
		t.Error("what is left over is none")
	}
}
