package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/report/conform"
)

// Verdicts prints a conformance run. Call Close or Finish at the end.
type Verdicts struct {
	panel
	cfg Config
	// all prints the ladder of every case, not only of failed ones.
	all   bool
	lines bool // lines were printed above the table
}

// NewVerdicts starts the display; ladders prints the ladder of every case.
func NewVerdicts(cfg Config, ladders bool) *Verdicts {
	d := &Verdicts{all: ladders}
	d.open(&cfg)
	d.cfg = cfg
	return d
}

// More increases the number of steps.
func (d *Verdicts) More(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total += n
}

// Start shows that a case has started.
func (d *Verdicts) Start(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start(printable.Line(what))
	d.draw()
}

// Part sets the progress of a running case. The next refresh shows it.
func (d *Verdicts) Part(what string, done, total int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.parts == nil {
		d.parts = make(map[string]string)
	}
	d.parts[printable.Line(what)] = fmt.Sprintf(" (%d of %d)", done, total)
}

// End marks a case as finished without printing it: one on a device with a defect.
func (d *Verdicts) End(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end(printable.Line(what))
	d.draw()
}

// Done prints a result unless it is a pass without details.
func (d *Verdicts) Done(what string, r *conform.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end(printable.Line(what))
	switch {
	case d.cfg.Quiet:
	case d.all:
		d.lines = true
		d.print(d.verdictLine(r, what) + ladderText(r.Ladder, 0))
	case r.Verdict.Bad():
		d.lines = true
		d.print(d.verdictLine(r, what))
	}
	d.draw()
}

// verdictWords are the printed verdicts. Bad ones are in capitals, visible without colours.
var verdictWords = map[conform.Verdict]string{
	conform.Pass: "ok", conform.Fail: "FAIL", conform.Broken: "BROKEN", conform.Stale: "STALE", conform.Deviates: "deviates", conform.Unsupported: "skip",
}

func (d *Verdicts) verdictLine(r *conform.Result, what string) string {
	s := d.tint(r.Verdict, verdictWords[r.Verdict]) + strings.Repeat(" ", max(0, verdictWidth-len(verdictWords[r.Verdict]))) + "  " + printable.Line(what)
	if r.Verdict.Bad() {
		return s + "\n"
	}
	return s + "  " + printable.Line(r.Title) + "\n"
}

// tint colours a text by a verdict.
func (d *Verdicts) tint(v conform.Verdict, s string) string {
	if !d.colour {
		return s
	}
	code := map[conform.Verdict]string{
		conform.Pass: "32", conform.Fail: "1;31", conform.Broken: "1;35", conform.Stale: "1;33", conform.Deviates: "33", conform.Unsupported: "2",
	}[v]
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (d *Verdicts) bold(s string) string {
	if !d.colour {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// Finish prints the summary and the paths of the report, and closes the display. It returns
// the first write error.
func (d *Verdicts) Finish(run *conform.Run, paths conform.Paths) error {
	d.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	if d.lines {
		b.WriteString("\n")
	}
	d.measured(&b, run)
	d.verdictTable(&b, run)
	d.unasked(&b, run)
	d.deviations(&b, run)
	bad := run.Bad()
	for i, r := range bad {
		if i == maxBad {
			fmt.Fprintf(&b, "\nand %d more that are not met.\n", len(bad)-maxBad)
			break
		}
		d.explain(&b, r)
	}
	d.faults(&b, run)
	fmt.Fprintf(&b, "\n%s\n", d.tally(run))
	for _, p := range []struct{ name, path string }{{"Report", paths.HTML}, {"Result", paths.Result}, {"JUnit", paths.JUnit}} {
		if p.path != "" {
			fmt.Fprintf(&b, "%s: %s\n", p.name, printable.Line(p.path))
			break // the page links to the other files
		}
	}
	d.print(b.String())
	return d.err
}

// explain prints a violation with its citation, its ladder and the replay command.
func (d *Verdicts) explain(b *strings.Builder, r conform.Judged) {
	fmt.Fprintf(b, "\n%s %s, %s\n", d.tint(r.Verdict, verdictWords[r.Verdict]), d.bold(printable.Line(r.ID)), printable.Line(r.Device.Label()))
	fmt.Fprintf(b, "    %s\n", printable.Line(r.Title))
	fmt.Fprintf(b, "    %s, %s", printable.Line(r.Level), printable.Line(r.Cite))
	if len(r.Rows) > 0 {
		fmt.Fprintf(b, " (%s)", printable.Line(strings.Join(r.Rows, ", ")))
	}
	b.WriteString("\n")
	if r.Want != "" || r.Got != "" {
		fmt.Fprintf(b, "    want  %s\n    got   %s\n", printable.Line(r.Want), d.tint(conform.Fail, printable.Line(r.Got)))
	} else {
		fmt.Fprintf(b, "    %s\n", printable.Line(r.Reason))
	}
	if !d.all { // otherwise printed before
		b.WriteString(ladderText(r.Ladder, maxLadder))
	}
	if r.Capture != "" {
		fmt.Fprintf(b, "    Packets: %s in the folder of the report\n", printable.Line(r.Capture))
	}
	if r.Replay != "" {
		fmt.Fprintf(b, "To repeat it alone:\n\n    %s\n", printable.Line(r.Replay))
	}
}

// maxLadder is the number of steps printed by default, the last ones.
const maxLadder = 16

// ladderText formats the ladder, limited to the last steps.
func ladderText(l *conform.Ladder, limit int) string {
	if l == nil || len(l.Steps) == 0 {
		return ""
	}
	shown := *l
	before := ""
	if n := len(l.Steps) - limit; limit > 0 && n > 1 {
		shown.Steps = l.Steps[n:]
		before = fmt.Sprintf("%18s  %d steps before are in the report\n", "", n)
	}
	text := fmt.Sprintf("\n%18s  %s\n%s", "", "device    peer", before)
	for line := range strings.Lines(shown.Text()) {
		text += "    " + line
	}
	return text + "\n"
}

// tally prints counts of verdicts, and of faults of the cases.
func (d *Verdicts) tally(run *conform.Run) string {
	if n := len(run.Faults); n > 0 {
		return d.tallyDevices(run) + fmt.Sprintf(" The cases have %s.", d.tint(conform.Fail, units.Plural(n, "fault")))
	}
	return d.tallyDevices(run)
}

func (d *Verdicts) tallyDevices(run *conform.Run) string {
	c := run.Counts()
	wall := units.Duration(run.Wall.Round(time.Millisecond))
	total := c.Total()
	measured := 0
	for i := range run.Devices {
		measured += len(run.Devices[i].Measured)
	}
	switch {
	case total == 0 && measured > 0:
		return fmt.Sprintf("%s, in %s.", units.Plural(measured, "measurement"), wall)
	case total == 0:
		return "Nothing was judged."
	case c[conform.Pass] == total && total == 1:
		return fmt.Sprintf("The case %s, in %s.", d.tint(conform.Pass, "passes"), wall)
	case c[conform.Pass] == total:
		return fmt.Sprintf("All %d cases %s, in %s.", total, d.tint(conform.Pass, "pass"), wall)
	}
	var parts []string
	for _, v := range conform.Verdicts() {
		if c[v] == 0 {
			continue
		}
		part := fmt.Sprintf("%d %s", c[v], d.tint(v, string(v)))
		if v == conform.Deviates {
			part += " (" + printable.Line(run.DeviationWords()) + ")"
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("%s: %s, in %s.", units.Plural(total, "case"), strings.Join(parts, ", "), wall)
}

// maxFaults limits the printed faults of cases; the report has all.
const maxFaults = 40

// faults prints the faults of the cases, and how many defects the cases detect.
func (d *Verdicts) faults(b *strings.Builder, run *conform.Run) {
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
		fmt.Fprintf(b, "\n%s: the cases notice %d of the %d defects that it can have", printable.Line(dev.Name), caught, len(dev.DefectChecks))
		if excused > 0 {
			fmt.Fprintf(b, "; of %d they could not be asked here", excused)
		}
		b.WriteString(".\n")
	}
	for i, f := range run.Faults {
		if i == 0 {
			b.WriteString("\n")
		}
		if i == maxFaults {
			fmt.Fprintf(b, "and %d more.\n", len(run.Faults)-maxFaults)
			return
		}
		where := ""
		if f.Device != "" {
			where = printable.Line(f.Device) + ": "
		}
		fmt.Fprintf(b, "%s %s%s\n", d.tint(conform.Fail, strings.ToUpper(printable.Line(f.Kind))), where, printable.Line(f.What))
	}
}
