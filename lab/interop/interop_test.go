package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/interop"
	"github.com/fabrictest/fabrictest/internal/must"
)

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

// A failure is printed with its reason and the command that repeats it, and is in the file.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	o := &Options{Out: &out, Command: func(exchange string) string { return "fabrictest interop verbs " + exchange }}
	r := newReport(&interop.Suite{Ours: &interop.End{Name: "softroce"}, Theirs: &interop.End{Name: "rxe"}}, o)
	one := interop.Case{Op: "write", By: interop.Theirs, Method: interop.ByModify, Family: interop.IPv6, Size: 0}
	two := one
	two.Size = 4097
	r.add(interop.Result{Case: one, Verdict: interop.Pass, Took: time.Second})
	r.add(interop.Result{Case: two, Verdict: interop.Fail, Why: "1 of 4097 octets"})
	r.endExchanges()
	for _, want := range []string{
		"write/theirs/hand/ipv6                1.0 s  0 ok, 4097 fail\n", "write/theirs/hand/ipv6/4097: 1 of 4097 octets\n",
		"again: fabrictest interop verbs write/theirs/hand/ipv6/4097\n",
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
	must.Do(t, r.write(path))
	text, err := os.ReadFile(path)
	var back report
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
