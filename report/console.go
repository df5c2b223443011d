package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// DisplayConfig configures a Display.
type DisplayConfig = kit.PanelConfig

// Display prints the progress and the results of a run on a terminal: a line per result, a
// progress line, and a summary. Call Close or Finish at the end.
type Display struct {
	kit.Panel
	nameWidth     int // of the column of names
	headerPrinted bool
}

// NewDisplay starts the display of a run of the scenarios with these names. The column of names
// is as wide as the longest name, up to maxNameWidth.
func NewDisplay(cfg DisplayConfig, names []string) *Display {
	const maxNameWidth = 36
	d := &Display{nameWidth: len("scenario")}
	for _, n := range names {
		d.nameWidth = max(d.nameWidth, min(maxNameWidth, kit.TextWidth(cli.PrintableLine(n))))
	}
	d.Open(cfg)
	return d
}

// Start shows that a scenario has started on a tier.
func (d *Display) Start(name, tier string) { d.Panel.Start(label(name, tier)) }

// Done prints a row with a result, and before the first row the header of the table.
func (d *Display) Done(r *Result) {
	d.EndWith(label(r.Name, r.Tier), func() string {
		if d.headerPrinted {
			return d.row(r)
		}
		d.headerPrinted = true
		cells := make([]string, len(tableColumns))
		for i, c := range tableColumns {
			cells[i] = c.name
		}
		return tableLine(kit.Pad("", verdictWidth), kit.Pad("scenario", d.nameWidth), cells) + d.row(r)
	})
}

// Finish prints the summary and the paths of the report, and closes the display. It returns the
// first write error.
func (d *Display) Finish(run *Run, paths Paths) error { return d.Panel.Finish(d.summary(run), paths) }

// label returns "NAME on TIER".
func label(name, tier string) string {
	return strings.TrimSpace(cli.PrintableLine(name) + " on " + cli.PrintableLine(tier))
}

// Columns of the table after verdict and name. All but the first are numeric.
var tableColumns = []struct {
	name  string
	width int
}{{"tier", 5}, {"ranks", 5}, {"messages", 8}, {"bytes", 9}, {"lost", 7}, {"resent", 7}, {"time", 8}, {"goodput", 9}}

const verdictWidth = 6

// verdictNames are the printed verdicts. Bad ones are in capitals, visible without colours.
var verdictNames = map[Verdict]string{Passed: "ok", Failed: "FAIL", Broken: "BROKEN", Starved: "STARVED", Skipped: "skip"}

// row formats a result: figures if it passed, else the reason.
func (d *Display) row(r *Result) string {
	const minReason = 24 // a reason is truncated to the width of the terminal, but not further than this
	verdictName := verdictNames[r.Verdict]
	verdict := d.paint(r.Verdict, verdictName) + strings.Repeat(" ", max(0, verdictWidth-kit.TextWidth(verdictName)))
	name, tier := kit.Pad(cli.PrintableLine(r.Name), d.nameWidth), cli.PrintableLine(r.Tier)
	if r.Verdict != Passed {
		before := fmt.Sprintf("  %s  %s  ", name, kit.Pad(tier, tableColumns[0].width))
		return verdict + before + kit.Cut(cli.PrintableLine(r.Reason), max(d.Columns()-verdictWidth-kit.TextWidth(before), minReason)) + "\n"
	}
	if e := r.Experiment; e != nil {
		cells := []string{tier, fmt.Sprint(e.Ranks), "", "", "", "", cli.Duration(r.Elapsed), ""}
		return strings.TrimRight(tableLine(verdict, name, cells), " \n") + fmt.Sprintf("  %d of %d figures agree\n", e.Agreeing(), len(e.Figures))
	}
	t := r.Totals()
	return tableLine(verdict, name, []string{
		tier, fmt.Sprint(len(r.Ranks)), fmt.Sprint(t.Messages), cli.Bytes(t.Bytes), fmt.Sprint(t.Lost), fmt.Sprint(t.Resent),
		cli.Duration(r.Elapsed), cli.BitRate(r.GoodputBps()),
	})
}

// tableLine returns a line of the table: the padded verdict and name, then the cells of
// tableColumns, the first left-aligned and the others right-aligned.
func tableLine(verdict, name string, cells []string) string {
	var b strings.Builder
	b.WriteString(verdict + "  " + name)
	for i, c := range cells {
		pad := kit.PadLeft
		if i == 0 {
			pad = kit.Pad
		}
		b.WriteString("  " + pad(c, tableColumns[i].width))
	}
	b.WriteByte('\n')
	return b.String()
}

// colours are the ANSI codes of verdicts.
var colours = map[Verdict]string{Passed: "32", Failed: "1;31", Broken: "1;35", Starved: "1;33", Skipped: "2"}

func (d *Display) paint(v Verdict, s string) string { return d.Paint(colours[v], s) }

// maxBad limits the described bad results; the report has all.
const maxBad = 20

// summary returns the text after the table: the bad results with replay commands, the number of
// results by verdict, the results that lacked CPU time, the reasons of skipped results, and the
// command that repeats the run.
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
	fmt.Fprintf(&b, "\n%s\n", d.countsLine(run))
	b.WriteString(starvedLines(run) + skipLines(run))
	if run.Command != "" {
		if run.Seed != 0 { // 0: each scenario has its own
			fmt.Fprintf(&b, "Seed %d. ", run.Seed)
		}
		fmt.Fprintf(&b, "To repeat this run:\n\n    %s\n\n", cli.PrintableLine(run.Command))
	}
	return b.String()
}

// describe writes the reason of a bad result, its failed checks and its replay command. If
// checks failed, the heading has their names instead of the reason. If the first of two attempts
// had another reason, the heading has that too.
func (d *Display) describe(b *strings.Builder, r *Result) {
	why := r.Reason
	if names := r.FailedChecks(); r.Verdict == Failed && len(names) > 0 {
		why = strings.Join(names, ", ")
	}
	if r.First != nil && r.First.Reason != r.Reason {
		why += "; the first attempt: " + r.First.Reason
	}
	fmt.Fprintf(b, "\n%s %s: %s\n", d.paint(r.Verdict, verdictNames[r.Verdict]), label(r.Name, r.Tier), cli.PrintableLine(why))
	for _, c := range r.Checks {
		if !c.OK {
			fmt.Fprintf(b, "    %s: want %s, got %s\n", cli.PrintableLine(c.Name), cli.PrintableLine(c.Want), cli.PrintableLine(c.Got))
		}
	}
	if r.Replay != "" {
		fmt.Fprintf(b, "To repeat it alone:\n\n    %s\n", cli.PrintableLine(r.Replay))
	}
}

// countsLine returns the number of results by verdict and the duration of the run as text.
func (d *Display) countsLine(run *Run) string {
	n := run.Counts()
	wall := cli.Duration(run.Wall.Round(time.Millisecond))
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

// starvedLines returns a line with the number of results that passed only when repeated, and a line
// with the number of starved results (which lacked CPU time) and advice. It omits numbers of 0.
func starvedLines(run *Run) (text string) {
	if n := run.RepeatedCount(); n > 0 {
		text = fmt.Sprintf("%d passed only when repeated: the machine was too busy the first time.\n", n)
	}
	if n := run.Counts()[Starved]; n > 0 {
		text += fmt.Sprintf("Starved %d: other processes kept the processors busy, twice. Repeat with fewer of them running, or on more processors.\n", n)
	}
	return text
}

// skipLines returns a line for each distinct reason of skipped results, with their number.
func skipLines(run *Run) (text string) {
	var reasons []string
	counts := map[string]int{} // by reason
	for i := range run.Scenarios {
		if r := &run.Scenarios[i]; r.Verdict == Skipped {
			if counts[r.Reason]++; counts[r.Reason] == 1 {
				reasons = append(reasons, r.Reason)
			}
		}
	}
	for _, reason := range reasons {
		text += fmt.Sprintf("Skipped %d: %s\n", counts[reason], cli.PrintableLine(reason))
	}
	return text
}

// ProgressLine shows the progress of a measurement: one line that changes on a terminal,
// otherwise a line every ten seconds.
type ProgressLine struct {
	to       io.Writer
	terminal bool
	last     time.Time
}

// NewProgressLine returns a progress line that is written to a file; terminal tells whether the
// file is a terminal.
func NewProgressLine(to io.Writer, terminal bool) *ProgressLine {
	return &ProgressLine{to: to, terminal: terminal}
}

// clearLine returns to the start of a terminal's line and erases the line.
const clearLine = "\r\x1b[K"

// Report shows the current step, and the share of the measurement that is done, from 0 to 1.
// Without a terminal it prints a line, every 10 seconds at most.
func (p *ProgressLine) Report(step string, done float64) {
	text := fmt.Sprintf("%3.0f %%  %s", 100*done, cli.PrintableLine(step))
	switch {
	case p.terminal:
		fmt.Fprint(p.to, clearLine+text)
	case time.Since(p.last) >= 10*time.Second:
		p.last = time.Now()
		fmt.Fprintln(p.to, text)
	}
}

// Clear removes the line from a terminal.
func (p *ProgressLine) Clear() {
	if p.terminal {
		fmt.Fprint(p.to, clearLine)
	}
}
