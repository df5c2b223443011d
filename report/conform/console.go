package conform

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Display prints the progress and the verdicts of a conformance run on a terminal. Call Close or
// Finish at the end.
type Display struct {
	kit.Panel
	allLadders   bool // print the ladder diagram (packets and calls) of every case, not only of bad ones
	linesPrinted bool // Done has printed something above the table of verdicts
}

// NewDisplay starts the display. With ladders, it prints the ladder diagram of every case: the
// sequence of its packets and calls.
func NewDisplay(cfg report.DisplayConfig, ladders bool) *Display {
	d := &Display{allLadders: ladders}
	d.Open(cfg)
	return d
}

// Done ends the running case that the display shows as label. It prints the verdict if that is bad.
// With d.allLadders it prints every verdict, and the case's ladder diagram of packets and calls.
func (d *Display) Done(label string, r *Result) {
	d.EndWith(label, func() string {
		switch {
		case d.allLadders:
			d.linesPrinted = true
			return d.verdictLine(r, label) + ladderText(r.Ladder, math.MaxInt)
		case r.Verdict.Bad():
			d.linesPrinted = true
			return d.verdictLine(r, label)
		}
		return ""
	})
}

// verdictNames are the printed verdicts. Bad ones are in capitals, visible without colours.
var verdictNames = map[Verdict]string{
	Pass: "ok", Fail: "FAIL", Broken: "BROKEN", Starved: "STARVED", Stale: "STALE", Deviates: "deviates", Unsupported: "skip",
}

// verdictLine returns a line with the verdict, the label and, unless bad, the title of the case.
// Finish prints the title of a bad case.
func (d *Display) verdictLine(r *Result, label string) string {
	const width = 6 // of most verdicts
	name := verdictNames[r.Verdict]
	s := d.tint(r.Verdict, name) + kit.Pad("", width-len(name)) + "  " + cli.PrintableLine(label)
	if r.Verdict.Bad() {
		return s + "\n"
	}
	return s + "  " + cli.PrintableLine(r.Title) + "\n"
}

// colours are the ANSI codes of verdicts.
var colours = map[Verdict]string{Pass: "32", Fail: "1;31", Broken: "1;35", Starved: "1;33", Stale: "1;33", Deviates: "33", Unsupported: "2"}

// tint colours a text by a verdict.
func (d *Display) tint(v Verdict, s string) string { return d.Paint(colours[v], s) }

func (d *Display) bold(s string) string { return d.Paint(kit.Bold, s) }

// Finish prints the summary and the paths of the report, and closes the display. It returns the
// first write error.
func (d *Display) Finish(run *Run, paths report.Paths) error {
	var b strings.Builder
	if d.linesPrinted {
		b.WriteString("\n")
	}
	d.writeMeasured(&b, run)
	d.writeVerdictTable(&b, run)
	d.writeUnsupported(&b, run)
	writeNotJudged(&b, run)
	d.writeDeviations(&b, run)
	bad := run.Bad()
	for i, r := range bad {
		if i == maxPrinted {
			fmt.Fprintf(&b, "\nand %d more that are not met.\n", len(bad)-maxPrinted)
			break
		}
		d.writeBadResult(&b, r)
	}
	d.writeFaults(&b, run)
	fmt.Fprintf(&b, "\n%s", d.tally(run))
	if n := len(run.Faults); n > 0 {
		fmt.Fprintf(&b, " The cases have %s.", d.tint(Fail, cli.Plural(n, "fault")))
	}
	b.WriteString("\n")
	return d.Panel.Finish(b.String(), paths)
}

// writeBadResult prints a bad result with its citation, its last steps (the ladder diagram of
// packets and calls) and the replay command.
func (d *Display) writeBadResult(b *strings.Builder, r Judged) {
	const maxLadder = 16 // the number of last steps that are printed
	fmt.Fprintf(b, "\n%s %s, %s\n", d.tint(r.Verdict, verdictNames[r.Verdict]), d.bold(cli.PrintableLine(r.ID)), cli.PrintableLine(r.Device.Label()))
	fmt.Fprintf(b, "    %s\n", cli.PrintableLine(r.Title))
	fmt.Fprintf(b, "    %s, %s", cli.PrintableLine(r.Level), cli.PrintableLine(r.Cite))
	if r.clause() == r.Cite && len(r.Rows) > 0 { // otherwise the citation has the rows
		fmt.Fprintf(b, " (%s)", cli.PrintableLine(strings.Join(r.Rows, ", ")))
	}
	b.WriteString("\n")
	if r.Want != "" || r.Got != "" {
		fmt.Fprintf(b, "    want  %s\n    got   %s\n", cli.PrintableLine(r.Want), d.tint(Fail, cli.PrintableLine(r.Got)))
	} else {
		fmt.Fprintf(b, "    %s\n", cli.PrintableLine(r.Reason))
	}
	if !d.allLadders { // otherwise printed by Done
		b.WriteString(ladderText(r.Ladder, maxLadder))
	}
	if r.Capture != "" {
		fmt.Fprintf(b, "    Packets: %s in the folder of the report\n", cli.PrintableLine(r.Capture))
	}
	if r.Replay != "" {
		fmt.Fprintf(b, "To repeat it alone:\n\n    %s\n", cli.PrintableLine(r.Replay))
	}
}

// maxPrinted limits the described results; the report has all.
const maxPrinted = 20

// ladderText formats the last limit steps of a ladder diagram, below a line with the number of
// steps before. A single step before is printed in the place of that line.
func ladderText(l *Ladder, limit int) string {
	if l == nil || len(l.Steps) == 0 {
		return ""
	}
	const arrowColumn = 18 // of the lines of Ladder.Text, with the indent
	shown := *l
	omitted := ""
	if n := len(l.Steps) - limit; n > 1 {
		shown.Steps = l.Steps[n:]
		omitted = fmt.Sprintf("%*s  %d steps before are in the report\n", arrowColumn, "", n)
	}
	text := fmt.Sprintf("\n%*s  device    peer\n%s", arrowColumn, "", omitted)
	for line := range strings.Lines(shown.Text()) {
		text += "    " + line
	}
	return text + "\n"
}

// tally returns the number of cases by verdict, or of measurements, as a sentence.
func (d *Display) tally(run *Run) string {
	c := run.Counts()
	wall := cli.Duration(run.Wall.Round(time.Millisecond))
	total := c.Total()
	measured := run.measurements()
	switch {
	case total == 0 && measured > 0:
		return fmt.Sprintf("%s, in %s.", cli.Plural(measured, "measurement"), wall)
	case total == 0:
		return "Nothing was judged."
	case c[Pass] == total && total == 1:
		return fmt.Sprintf("The case %s, in %s.", d.tint(Pass, "passes"), wall)
	case c[Pass] == total:
		return fmt.Sprintf("All %d cases %s, in %s.", total, d.tint(Pass, "pass"), wall)
	}
	var parts []string
	for _, v := range Verdicts() {
		if c[v] == 0 {
			continue
		}
		part := fmt.Sprintf("%d %s", c[v], d.tint(v, string(v)))
		if v == Deviates {
			part += " (" + cli.PrintableLine(run.DeviationCounts()) + ")"
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("%s: %s, in %s.", cli.Plural(total, "case"), strings.Join(parts, ", "), wall)
}

// maxPrintedFaults limits the printed faults of cases; the report has all.
const maxPrintedFaults = 40

// writeFaults prints how many defects of each device the cases detect, and the faults of the cases
// themselves, such as one that fails on a device without defects.
func (d *Display) writeFaults(b *strings.Builder, run *Run) {
	for i := range run.Devices {
		dev := &run.Devices[i]
		if len(dev.DefectChecks) == 0 {
			continue
		}
		caught, excused := 0, 0
		for _, m := range dev.DefectChecks {
			switch {
			case len(m.Caught) > 0:
				caught++
			case m.Excused != "":
				excused++
			}
		}
		fmt.Fprintf(b, "\n%s: the cases notice %d of the %d defects that it can have", cli.PrintableLine(dev.Name), caught, len(dev.DefectChecks))
		if excused > 0 {
			fmt.Fprintf(b, "; %d could not be tested here", excused)
		}
		b.WriteString(".\n")
	}
	for i, f := range run.Faults {
		if i == 0 {
			b.WriteString("\n")
		}
		if i == maxPrintedFaults {
			fmt.Fprintf(b, "and %d more.\n", len(run.Faults)-maxPrintedFaults)
			return
		}
		where := ""
		if f.Device != "" {
			where = cli.PrintableLine(f.Device) + ": "
		}
		fmt.Fprintf(b, "%s %s%s\n", d.tint(Fail, strings.ToUpper(cli.PrintableLine(f.Kind))), where, cli.PrintableLine(f.What))
	}
}

// writeDeviations prints the known deviations: requirements that are not met, each with the reason.
func (d *Display) writeDeviations(b *strings.Builder, run *Run) {
	all := run.Deviating()
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\nNot met, for reasons on record: %s\n", cli.PrintableLine(run.DeviationCounts()))
	for i, r := range all {
		if i == maxPrinted {
			fmt.Fprintf(b, "  and %d more, in the report.\n", len(all)-maxPrinted)
			return
		}
		fmt.Fprintf(b, "  %s %s, %s\n", d.tint(Deviates, fmt.Sprintf("%-6s", cli.PrintableLine(r.Level))), d.bold(cli.PrintableLine(r.ID)), cli.PrintableLine(r.Device.Label()))
		if r.Want != "" || r.Got != "" {
			fmt.Fprintf(b, "         want  %s\n         got   %s\n", cli.PrintableLine(r.Want), cli.PrintableLine(r.Got))
		}
		const indent = "         "
		const width = 100 - len(indent)
		for _, line := range wrap(cli.PrintableLine(r.Deviation), width, math.MaxInt) {
			b.WriteString(indent + line + "\n")
		}
	}
}

// writeUnsupported prints the reasons of unsupported cases, each with the number of cases, and the
// name of the case if it is the only one.
func (d *Display) writeUnsupported(b *strings.Builder, run *Run) {
	first := true
	for i := range run.Devices {
		dev := &run.Devices[i]
		for _, u := range dev.UnsupportedReasons() {
			if first {
				b.WriteString("\nNot supported, and why\n")
				first = false
			}
			line := fmt.Sprintf("  %-9s %4d  %s", cli.PrintableLine(dev.Label()), len(u.Cases), cli.PrintableLine(u.Why))
			if len(u.Cases) == 1 {
				line += " (" + cli.PrintableLine(u.Cases[0]) + ")"
			}
			b.WriteString(line + "\n")
		}
	}
}

// writeNotJudged prints the requirements that no case of a complete run could test, with the
// reasons, and those that depend on headers which a simulated bench writes itself.
func writeNotJudged(b *strings.Builder, run *Run) {
	rows := run.NotJudged()
	if len(rows) > 0 {
		b.WriteString("\nNot judged in this run, and why\n")
	}
	for _, r := range rows {
		fmt.Fprintf(b, "  %-6s %-16s %s\n", r.Level, r.ID, cli.PrintableLine(r.Why))
	}
	if written := run.rowsOfBenchHeaders(); len(written) > 0 {
		fmt.Fprintf(b, "\nThe simulated bench itself writes the lengths, options and fragment fields of IP and UDP headers. Judge them with --on netns:\n  %s\n", strings.Join(written, ", "))
	}
}
