package report

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Columns of the table after verdict and name. All but the first are numeric.
var columnsOf = []struct {
	name  string
	width int
}{{"tier", 5}, {"ranks", 5}, {"messages", 8}, {"bytes", 9}, {"lost", 7}, {"resent", 7}, {"time", 8}, {"goodput", 9}}

const verdictWidth = 6

// verdictNames are the printed verdicts. Bad ones are in capitals, visible without colours.
var verdictNames = map[Verdict]string{Passed: "ok", Failed: "FAIL", Broken: "BROKEN", Starved: "STARVED", Skipped: "skip"}

func (d *Display) header() string {
	cells := make([]string, len(columnsOf))
	for i, c := range columnsOf {
		cells[i] = c.name
	}
	return line(kit.Pad("", verdictWidth), kit.Pad("scenario", d.name), cells)
}

// minReason is the minimum printed length of a reason. A longer reason is truncated to the
// width of the terminal; the summary has it in full.
const minReason = 24

// row formats a result: figures if it passed, else the reason.
func (d *Display) row(r *Result) string {
	word := verdictNames[r.Verdict]
	verdict := d.paint(r.Verdict, word) + strings.Repeat(" ", max(0, verdictWidth-kit.TextWidth(word)))
	name, tier := kit.Pad(textfmt.PrintableLine(r.Name), d.name), textfmt.PrintableLine(r.Tier)
	if r.Verdict != Passed {
		before := fmt.Sprintf("  %s  %s  ", name, kit.Pad(tier, columnsOf[0].width))
		return verdict + before + kit.Cut(textfmt.PrintableLine(r.Reason), max(d.Columns()-verdictWidth-kit.TextWidth(before), minReason)) + "\n"
	}
	t := r.Totals()
	return line(verdict, name, []string{
		tier, fmt.Sprint(len(r.Ranks)), fmt.Sprint(t.Messages), textfmt.Bytes(t.Bytes), fmt.Sprint(t.Lost), fmt.Sprint(t.Resent),
		textfmt.Duration(r.Elapsed), textfmt.BitRate(r.GoodputBps()),
	})
}

// line returns a row of the table: the first cell is left-aligned, the others right-aligned.
func line(verdict, name string, cells []string) string {
	var b strings.Builder
	b.WriteString(verdict + "  " + name)
	for i, c := range cells {
		b.WriteString("  ")
		if i == 0 {
			b.WriteString(kit.Pad(c, columnsOf[i].width))
			continue
		}
		b.WriteString(kit.PadLeft(c, columnsOf[i].width))
	}
	b.WriteByte('\n')
	return b.String()
}

// colours are the ANSI codes of verdicts.
var colours = map[Verdict]string{Passed: "32", Failed: "1;31", Broken: "1;35", Starved: "1;33", Skipped: "2"}

func (d *Display) paint(v Verdict, s string) string { return d.Paint(colours[v], s) }
