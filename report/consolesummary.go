package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// maxBad limits the described bad results; the report has all.
const maxBad = 20

// summary prints the bad results with replay commands, then the figures, then the paths of
// the
func (d *Display) summary(run *Run) string {
	var b strings.Builder
	bad := run.Bad()
	for i, r := range bad {
		if i == maxBad {
			fmt.Fprintf(&b, "\nand %d more that did not pass.\n", len(bad)-maxBad)
			break
		}
		d.describe(&b, r)
	}
	fmt.Fprintf(&b, "\n%s\n", d.counts(run))
	b.WriteString(starved(run))
	for _, s := range skips(run) {
		b.WriteString(s + "\n")
	}
	if run.Command != "" {
		if run.Seed != 0 { // 0: each scenario has its own
			fmt.Fprintf(&b, "Seed %d. ", run.Seed)
		}
		fmt.Fprintf(&b, "To repeat this run:\n\n    %s\n\n", textfmt.PrintableLine(run.Command))
	}
	return b.String()
}

// describe prints the reason of a bad result and its replay command. If checks failed, the
// heading only names them.
func (d *Display) describe(b *strings.Builder, r *Result) {
	why := r.Reason
	if names := r.FailedChecks(); r.Verdict == Failed && len(names) > 0 {
		why = strings.Join(names, ", ")
	}
	if r.First != nil && r.First.Reason != r.Reason {
		why += "; the first attempt: " + r.First.Reason
	}
	fmt.Fprintf(b, "\n%s %s: %s\n", d.paint(r.Verdict, verdictNames[r.Verdict]), label(r.Name, r.Tier), textfmt.PrintableLine(why))
	for _, c := range r.Checks {
		if !c.OK {
			fmt.Fprintf(b, "    %s: want %s, got %s\n", textfmt.PrintableLine(c.Name), textfmt.PrintableLine(c.Want), textfmt.PrintableLine(c.Got))
		}
	}
	if r.Replay != "" {
		fmt.Fprintf(b, "To repeat it alone:\n\n    %s\n", textfmt.PrintableLine(r.Replay))
	}
}

// counts returns the number of results by verdict as text.
func (d *Display) counts(run *Run) string {
	n := run.Counts()
	wall := textfmt.Duration(run.Wall.Round(time.Millisecond))
	total := len(run.Scenarios)
	switch {
	case total == 0:
		return "Nothing was run."
	case n[Passed] == total && total == 1:
		return fmt.Sprintf("It %s, in %s.", d.paint(Passed, "passed"), wall)
	case n[Passed] == total:
		return fmt.Sprintf("All %d %s, in %s.", total, d.paint(Passed, "passed"), wall)
	}
	var parts []string
	for _, v := range Verdicts() {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], d.paint(v, string(v))))
		}
	}
	return fmt.Sprintf("%s, in %s.", strings.Join(parts, ", "), wall)
}

// starved prints the starved results, and what to do about them.
func starved(run *Run) (text string) {
	if n := run.Repeated(); n > 0 {
		text = fmt.Sprintf("%d passed only when repeated: the machine was too busy the first time.\n", n)
	}
	if n := run.Counts()[Starved]; n > 0 {
		text += fmt.Sprintf("Starved %d: other processes kept the processors busy, twice. Repeat with fewer of them running, or on more processors.\n", n)
	}
	return text
}

// skips returns the distinct reasons of skipped results.
func skips(run *Run) []string {
	var order []string
	by := map[string]int{}
	for i := range run.Scenarios {
		r := &run.Scenarios[i]
		if r.Verdict != Skipped {
			continue
		}
		reason := textfmt.PrintableLine(r.Reason)
		if by[reason] == 0 {
			order = append(order, reason)
		}
		by[reason]++
	}
	for i, reason := range order {
		order[i] = fmt.Sprintf("Skipped %d: %s", by[reason], reason)
	}
	return order
}
