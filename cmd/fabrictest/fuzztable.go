package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/fuzz"
)

// fuzzTable shows how targets are getting on: a line for each that is done, and on
// a terminal one that changes.
type fuzzTable struct {
	out, status io.Writer
	terminal    bool
	count       int
	width       int
	results     []*fuzzResult
	began       time.Time
	said        bool // the header has been printed
}

func newFuzzTable(out, status io.Writer, targets []fuzz.Target) *fuzzTable {
	t := &fuzzTable{out: out, status: status, count: len(targets), began: time.Now(), width: len("target")}
	for _, x := range targets {
		t.width = max(t.width, len(x.String()))
	}
	if f := terminalOf(status); f != nil {
		t.status, t.terminal = f, true
	}
	return t
}

// progress shows the target that runs, and all so far.
func (t *fuzzTable) progress(r *fuzzResult) {
	if !t.terminal {
		return
	}
	all := r.Executions
	for _, done := range t.results {
		all += done.Executions
	}
	fmt.Fprintf(t.status, "\r\x1b[K%d/%d  %s  %s executions, %s/s, %d new of %d  (all: %s)",
		len(t.results)+1, t.count, r, thousands(r.Executions), thousands(uint64(r.PerSecond)), r.New, r.Corpus, thousands(all))
}

func (t *fuzzTable) clear() {
	if t.terminal {
		fmt.Fprint(t.status, "\r\x1b[K")
	}
}

// done shows what came of a target.
func (t *fuzzTable) done(r *fuzzResult) {
	t.clear()
	t.results = append(t.results, r)
	if r.Seconds > 0 {
		r.PerSecond = float64(r.Executions) / r.Seconds
	}
	if !t.said {
		t.said = true
		fmt.Fprintf(t.out, "%-11s  %-*s  %12s  %9s  %5s  %6s  %6s\n", "", t.width, "target", "executions", "/s", "new", "corpus", "time")
	}
	verdict := r.Verdict
	if verdict == fuzzPassed {
		verdict = "ok"
	}
	fmt.Fprintf(t.out, "%-11s  %-*s  %12s  %9s  %5d  %6d  %6s\n", verdict, t.width, r, thousands(r.Executions), thousands(uint64(r.PerSecond)),
		r.New, r.Corpus, time.Duration(r.Seconds*float64(time.Second)).Round(100*time.Millisecond))
	if r.Output != "" {
		fmt.Fprintln(t.out, complaint(strings.TrimSpace(r.Output)))
	}
	for _, in := range r.Failures {
		if in.File != "" {
			fmt.Fprintf(t.out, "    the input is in %s\n", in.File)
		}
		fmt.Fprintf(t.out, "    to repeat it: %s\n", in.Replay)
	}
}

// maxOutput is how much of a target's complaint is shown: its trace may be long.
const maxOutput = 40

func complaint(text string) string {
	lines := strings.Split(text, "\n")
	if len(lines) > maxOutput {
		lines = append(lines[:maxOutput], fmt.Sprintf("(%d more lines)", len(lines)-maxOutput))
	}
	return "    " + strings.Join(lines, "\n    ")
}

// finish shows the sum.
func (t *fuzzTable) finish() {
	t.clear()
	r := t.result()
	counts := map[string]int{}
	for _, x := range t.results {
		counts[x.Verdict]++
	}
	words := []string{}
	for _, v := range []string{fuzzPassed, fuzzFailed, fuzzBroken, fuzzAbsent, fuzzInterrupted} {
		if counts[v] > 0 {
			words = append(words, fmt.Sprintf("%d %s", counts[v], v))
		}
	}
	if left := t.count - len(t.results); left > 0 {
		words = append(words, fmt.Sprintf("%d not begun", left))
	}
	fmt.Fprintf(t.out, "\n%d targets: %s; %s executions in %v\n", t.count, strings.Join(words, ", "), thousands(r.Executions),
		time.Duration(r.Seconds*float64(time.Second)).Round(time.Second))
}

// fuzzRun is what came of all.
type fuzzRun struct {
	Seconds    float64       `json:"seconds"`
	Executions uint64        `json:"executions"`
	Targets    []*fuzzResult `json:"targets"`
}

func (t *fuzzTable) result() fuzzRun {
	r := fuzzRun{Seconds: time.Since(t.began).Seconds(), Targets: t.results}
	for _, x := range t.results {
		r.Executions += x.Executions
	}
	return r
}

func (t *fuzzTable) failed() bool {
	for _, r := range t.results {
		if r.Verdict == fuzzFailed || r.Verdict == fuzzBroken {
			return true
		}
	}
	return false
}

// thousands writes a number with its thousands apart.
func thousands(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
