package console

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/report"
)

// Columns of the table after verdict and name. All but the first are numeric.
var columnsOf = []struct {
	name  string
	width int
}{{"tier", 5}, {"ranks", 5}, {"messages", 8}, {"bytes", 9}, {"lost", 7}, {"resent", 7}, {"time", 8}, {"goodput", 9}}

const verdictWidth = 6

// words are the printed verdicts. Bad ones are in capitals, visible without colours.
var words = map[report.Verdict]string{report.Passed: "ok", report.Failed: "FAIL", report.Broken: "BROKEN", report.Starved: "STARVED", report.Skipped: "skip"}

func (d *Display) header() string {
	cells := make([]string, len(columnsOf))
	for i, c := range columnsOf {
		cells[i] = c.name
	}
	return line(pad("", verdictWidth), pad("scenario", d.name), cells)
}

// minReason is the minimum printed length of a reason.
const minReason = 24

// room returns the width of a row. A longer reason is truncated; the summary has it in full.
func (d *Display) room() int {
	if n := columns(d.cfg.Out); n > 0 {
		return n
	}
	return 120
}

// row formats a result: figures if it passed, else the reason.
func (d *Display) row(r *report.Result) string {
	word := words[r.Verdict]
	verdict := d.paint(r.Verdict, word) + strings.Repeat(" ", max(0, verdictWidth-width(word)))
	name, tier := pad(printable.Line(r.Name), d.name), printable.Line(r.Tier)
	if r.Verdict != report.Passed {
		before := fmt.Sprintf("  %s  %s  ", name, pad(tier, columnsOf[0].width))
		return verdict + before + cut(printable.Line(r.Reason), max(d.room()-verdictWidth-width(before), minReason)) + "\n"
	}
	t := r.Totals()
	return line(verdict, name, []string{
		tier, fmt.Sprint(len(r.Ranks)), fmt.Sprint(t.Messages), units.Bytes(t.Bytes), fmt.Sprint(t.Lost), fmt.Sprint(t.Resent),
		units.Duration(r.Elapsed), units.BitRate(r.GoodputBps()),
	})
}

func line(verdict, name string, cells []string) string {
	var b strings.Builder
	b.WriteString(verdict + "  " + name)
	for i, c := range cells {
		b.WriteString("  ")
		if i == 0 {
			b.WriteString(pad(c, columnsOf[i].width))
			continue
		}
		b.WriteString(strings.Repeat(" ", max(0, columnsOf[i].width-width(c))) + c)
	}
	b.WriteByte('\n')
	return b.String()
}

// paint colours a text by a verdict.
func (d *Display) paint(v report.Verdict, s string) string {
	if !d.colour {
		return s
	}
	code := map[report.Verdict]string{report.Passed: "32", report.Failed: "1;31", report.Broken: "1;35", report.Starved: "1;33", report.Skipped: "2"}[v]
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-width(s))) }
