package fuzz

import (
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Table prints a line for each target that has ended and, on a terminal, a line with
// the counters of the target that runs.
type Table struct {
	out, status io.Writer
	terminal    bool
	count       int // number of targets
	width       int // of the column of targets
	results     []*Result
	began       time.Time
	hasHeader   bool // the header has been printed
}

// NewTable returns a table that prints the results of targets to out and, if terminal is set,
// the counters of the running target to status.
func NewTable(out, status io.Writer, terminal bool, targets []Target) *Table {
	t := &Table{out: out, status: status, terminal: terminal, count: len(targets), began: time.Now(), width: len("target")}
	for _, target := range targets {
		t.width = max(t.width, len(target.String()))
	}
	return t
}

// Progress prints the counters of the running target, and the executions of all targets, if the
// status goes to a terminal.
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

// clearProgress removes the line that Progress printed.
func (t *Table) clearProgress() {
	if t.terminal {
		fmt.Fprint(t.status, "\r\x1b[K")
	}
}

// Add adds the result of a target and prints it, with the output and the inputs of a failure.
func (t *Table) Add(r *Result) {
	t.clearProgress()
	t.results = append(t.results, r)
	if r.Seconds > 0 { // the average replaces the last value that the fuzzer printed
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
		fmt.Fprintln(t.out, indentFirstLines(strings.TrimSpace(r.Output)))
	}
	for _, in := range r.Failures {
		if in.File != "" {
			fmt.Fprintf(t.out, "    the input is in %s\n", in.File)
		}
		fmt.Fprintf(t.out, "    to repeat it: %s\n", in.Replay)
	}
}

// maxOutputLines is how many lines of a failed target's output are shown.
const maxOutputLines = 40

// indentFirstLines returns the first maxOutputLines lines of a text, indented, and how many follow.
func indentFirstLines(text string) string {
	lines := strings.Split(text, "\n")
	if len(lines) > maxOutputLines {
		lines = append(lines[:maxOutputLines], fmt.Sprintf("(%d more lines)", len(lines)-maxOutputLines))
	}
	return "    " + strings.Join(lines, "\n    ")
}

// Finish prints how many targets have each verdict, and the executions and time of all together.
func (t *Table) Finish() {
	t.clearProgress()
	summary := t.Summary()
	counts := map[string]int{} // by verdict
	for _, r := range t.results {
		counts[r.Verdict]++
	}
	var words []string
	for _, v := range []string{Passed, Failed, Broken, Absent, Interrupted} {
		if counts[v] > 0 {
			words = append(words, fmt.Sprintf("%d %s", counts[v], v))
		}
	}
	if left := t.count - len(t.results); left > 0 {
		words = append(words, fmt.Sprintf("%d not begun", left))
	}
	fmt.Fprintf(t.out, "\n%d targets: %s; %s executions in %v\n", t.count, strings.Join(words, ", "), thousands(summary.Executions),
		time.Duration(summary.Seconds*float64(time.Second)).Round(time.Second))
}

// Summary has the results of all targets.
type Summary struct {
	Seconds    float64   `json:"seconds"`
	Executions uint64    `json:"executions"`
	Targets    []*Result `json:"targets"`
}

// Summary returns the results of the targets that have ended.
func (t *Table) Summary() Summary {
	s := Summary{Seconds: time.Since(t.began).Seconds(), Targets: t.results}
	for _, r := range t.results {
		s.Executions += r.Executions
	}
	return s
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

// thousands formats a number with spaces between thousands: "12 345".
func thousands(n uint64) string { return cli.Count(n, " ") }

// wholeStackShares is the number of shares of the total time for a target of package fuzz,
// whose inputs run whole stacks and take longer. Other targets have one share.
const wholeStackShares = 4

// Times returns how long to fuzz every target. If the argument each is not 0, it is the time of
// every target. Otherwise the targets share total, with at least a second each: those of ./fuzz,
// which test the whole stack, get wholeStackShares shares, the others one.
func Times(total, each time.Duration, targets []Target) []time.Duration {
	shares := make([]int, len(targets))
	sum := 0
	for i, t := range targets {
		shares[i] = 1
		if t.Package == "./fuzz" {
			shares[i] = wholeStackShares
		}
		sum += shares[i]
	}
	times := make([]time.Duration, len(targets))
	for i := range times {
		times[i] = each
		if each == 0 {
			times[i] = max(total*time.Duration(shares[i])/time.Duration(sum), time.Second).Round(time.Millisecond)
		}
	}
	return times
}

// Select returns the targets that match one of the arguments, or all targets if there are no
// arguments. An argument that matches no target is an error.
func Select(targets []Target, args []string) (selected []Target, err error) {
	if len(args) == 0 {
		return targets, nil
	}
	matched := make([]bool, len(args))
	for _, t := range targets {
		isSelected := false
		for i, arg := range args {
			if t.matches(arg) {
				isSelected, matched[i] = true, true
			}
		}
		if isSelected {
			selected = append(selected, t)
		}
	}
	for i, arg := range args {
		if !matched[i] {
			var names []string
			for _, t := range targets {
				names = append(names, t.String(), t.Name)
			}
			hint := "'fabrictest fuzz --list' shows all targets"
			if similar := cli.Similar(arg, names); len(similar) > 0 {
				hint = fmt.Sprintf("did you mean %s?", strings.Join(similar, " or "))
			}
			return nil, cli.Errorf("no fuzz target %q: %s", arg, hint)
		}
	}
	return selected, nil
}

// matches reports whether arg names the target: by a path.Match pattern for its package, its
// function or package.function, or by a folder above its package. A package or folder in arg may
// begin with ./ and end in /...; dir/* stands for all packages below dir.
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
