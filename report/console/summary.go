package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/report"
)

// maxBad is how many results that did not pass are described; the report has
// them all.
const maxBad = 20

// summary is what matters when everything has scrolled by: what went wrong and
// how to see it again, then the figures, then where to read on.
func (d *Display) summary(run *report.Run, paths report.Paths) string {
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
		if run.Seed != 0 { // otherwise each scenario had its own
			fmt.Fprintf(&b, "Seed %d. ", run.Seed)
		}
		fmt.Fprintf(&b, "To repeat this run:\n\n    %s\n\n", printable.Line(run.Command))
	}
	for _, p := range []struct{ name, path string }{{"Report", paths.HTML}, {"Result", paths.Result}, {"JUnit", paths.JUnit}} {
		if p.path != "" {
			fmt.Fprintf(&b, "%s: %s\n", p.name, printable.Line(p.path))
			if p.name == "Report" {
				break // it links to the others' folder
			}
		}
	}
	return b.String()
}

// describe says why a result did not pass and how to have it again. Where checks
// tell why, the heading only names them.
func (d *Display) describe(b *strings.Builder, r *report.Result) {
	why := r.Reason
	if names := r.FailedChecks(); r.Verdict == report.Failed && len(names) > 0 {
		why = strings.Join(names, ", ")
	}
	if r.First != nil && r.First.Reason != r.Reason {
		why += "; the first attempt: " + r.First.Reason
	}
	fmt.Fprintf(b, "\n%s %s: %s\n", d.paint(r.Verdict, words[r.Verdict]), label(r.Name, r.Tier), printable.Line(why))
	for _, c := range r.Checks {
		if !c.OK {
			fmt.Fprintf(b, "    %s: want %s, got %s\n", printable.Line(c.Name), printable.Line(c.Want), printable.Line(c.Got))
		}
	}
	if r.Replay != "" {
		fmt.Fprintf(b, "To repeat it alone:\n\n    %s\n", printable.Line(r.Replay))
	}
}

func (d *Display) counts(run *report.Run) string {
	n := run.Counts()
	wall := units.Duration(run.Wall.Round(time.Millisecond))
	total := len(run.Scenarios)
	switch {
	case total == 0:
		return "Nothing was run."
	case n[report.Passed] == total && total == 1:
		return fmt.Sprintf("It %s, in %s.", d.paint(report.Passed, "passed"), wall)
	case n[report.Passed] == total:
		return fmt.Sprintf("All %d %s, in %s.", total, d.paint(report.Passed, "passed"), wall)
	}
	var parts []string
	for _, v := range report.Verdicts() {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], d.paint(v, string(v))))
		}
	}
	return fmt.Sprintf("%s, in %s.", strings.Join(parts, ", "), wall)
}

// starved says what became of results for which the machine was too busy, and what to
// do about those that remain.
func starved(run *report.Run) (text string) {
	if n := run.Repeated(); n > 0 {
		text = fmt.Sprintf("%d passed only when repeated: the machine was too busy the first time.\n", n)
	}
	if n := run.Counts()[report.Starved]; n > 0 {
		text += fmt.Sprintf("Starved %d: other processes kept the processors busy, twice. Repeat with fewer of them running, or on more processors.\n", n)
	}
	return text
}

// skips are the reasons for which results were skipped, each once.
func skips(run *report.Run) []string {
	var order []string
	by := map[string]int{}
	for i := range run.Scenarios {
		r := &run.Scenarios[i]
		if r.Verdict != report.Skipped {
			continue
		}
		reason := printable.Line(r.Reason)
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
