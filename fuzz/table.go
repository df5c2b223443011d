package fuzz

import (
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cmdline"
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

// wholeStackShares is the share of a target of whole stacks, where that of others is 1:
// an input takes about that much longer.
const wholeStackShares = 4

// Times returns how long each target is fuzzed: the time each, or if that is 0 its share
// of the total.
func Times(total, each time.Duration, targets []Target) []time.Duration {
	shares := make([]int, len(targets))
	sum := 0
	for i, t := range targets {
		if shares[i] = 1; t.Package == "./fuzz" {
			shares[i] = wholeStackShares
		}
		sum += shares[i]
	}
	times := make([]time.Duration, len(targets))
	for i := range times {
		if times[i] = each; each == 0 {
			times[i] = max(total*time.Duration(shares[i])/time.Duration(sum), time.Second).Round(time.Millisecond)
		}
	}
	return times
}

// Select returns the targets that match one of the arguments, in the order of the list;
// all without arguments.
func Select(all []Target, args []string) (some []Target, err error) {
	if len(args) == 0 {
		return all, nil
	}
	used := make([]bool, len(args))
	for _, t := range all {
		wanted := false
		for i, arg := range args {
			if t.matches(arg) {
				wanted, used[i] = true, true
			}
		}
		if wanted {
			some = append(some, t)
		}
	}
	for i, arg := range args {
		if !used[i] {
			var names []string
			for _, t := range all {
				names = append(names, t.String(), t.Name)
			}
			hint := "'fabrictest fuzz --list' shows them"
			if like := cmdline.Similar(arg, names); len(like) > 0 {
				hint = fmt.Sprintf("did you mean %s?", strings.Join(like, " or "))
			}
			return nil, cmdline.Errorf("no fuzz target %q: %s", arg, hint)
		}
	}
	return some, nil
}

// matches reports whether an argument names a target: by its package, its function or
// both, or by a pattern of either. A pattern that ends in /* matches all packages below.
func (t Target) matches(arg string) bool {
	arg = strings.TrimSuffix(strings.TrimPrefix(arg, "./"), "/...")
	pkg := strings.TrimPrefix(t.Package, "./")
	if below, ok := strings.CutSuffix(arg, "/*"); ok && strings.HasPrefix(pkg, below+"/") {
		return true
	}
	for _, name := range []string{pkg, t.Name, t.String()} {
		if ok, err := path.Match(arg, name); ok && err == nil {
			return true
		}
	}
	return strings.HasPrefix(pkg, arg+"/")
}
