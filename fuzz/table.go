package fuzz

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Table prints a line for each target that has ended and, on a terminal, a line with
// the counters of the target that runs.
type Table struct {
	out, status io.Writer
	terminal    bool
	count       int
	width       int
	results     []*Result
	began       time.Time
	hasHeader   bool // it has been printed
}

// NewTable makes a table of results that are printed to out, and counters to status if
// that is a terminal.
func NewTable(out, status io.Writer, terminal bool, targets []Target) *Table {
	t := &Table{out: out, status: status, terminal: terminal, count: len(targets), began: time.Now(), width: len("target")}
	for _, x := range targets {
		t.width = max(t.width, len(x.String()))
	}
	return t
}

// Progress shows the counters of the target that runs, and the executions of all.
func (t *Table) Progress(r *Result) {
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

func (t *Table) clear() {
	if t.terminal {
		fmt.Fprint(t.status, "\r\x1b[K")
	}
}

// Add prints the result of a target.
func (t *Table) Add(r *Result) {
	t.clear()
	t.results = append(t.results, r)
	if r.Seconds > 0 {
		r.PerSecond = float64(r.Executions) / r.Seconds
	}
	if !t.hasHeader {
		t.hasHeader = true
		fmt.Fprintf(t.out, "%-11s  %-*s  %12s  %9s  %5s  %6s  %6s\n", "", t.width, "target", "executions", "/s", "new", "corpus", "time")
	}
	verdict := r.Verdict
	if verdict == Passed {
		verdict = "ok"
	}
	fmt.Fprintf(t.out, "%-11s  %-*s  %12s  %9s  %5d  %6d  %6s\n", verdict, t.width, r, thousands(r.Executions), thousands(uint64(r.PerSecond)),
		r.New, r.Corpus, time.Duration(r.Seconds*float64(time.Second)).Round(100*time.Millisecond))
	if r.Output != "" {
		fmt.Fprintln(t.out, outputLines(strings.TrimSpace(r.Output)))
	}
	for _, in := range r.Failures {
		if in.File != "" {
			fmt.Fprintf(t.out, "    the input is in %s\n", in.File)
		}
		fmt.Fprintf(t.out, "    to repeat it: %s\n", in.Replay)
	}
}

// maxOutput is how many lines of a failed target's output are shown.
const maxOutput = 40

func outputLines(text string) string {
	lines := strings.Split(text, "\n")
	if len(lines) > maxOutput {
		lines = append(lines[:maxOutput], fmt.Sprintf("(%d more lines)", len(lines)-maxOutput))
	}
	return "    " + strings.Join(lines, "\n    ")
}

// Finish prints the totals.
func (t *Table) Finish() {
	t.clear()
	r := t.Summary()
	counts := map[string]int{}
	for _, x := range t.results {
		counts[x.Verdict]++
	}
	words := []string{}
	for _, v := range []string{Passed, Failed, Broken, Absent, Interrupted} {
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

// Summary has the results of all targets.
type Summary struct {
	Seconds    float64   `json:"seconds"`
	Executions uint64    `json:"executions"`
	Targets    []*Result `json:"targets"`
}

// Summary returns the results of the targets that have ended.
func (t *Table) Summary() Summary {
	r := Summary{Seconds: time.Since(t.began).Seconds(), Targets: t.results}
	for _, x := range t.results {
		r.Executions += x.Executions
	}
	return r
}

// Failed reports whether a target failed or could not be built.
func (t *Table) Failed() bool {
	for _, r := range t.results {
		if r.Verdict == Failed || r.Verdict == Broken {
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
