package report

import (
	"strings"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// DisplayConfig configures a Display.
type DisplayConfig = kit.PanelConfig

// Display prints the progress and the results of a run on a terminal: a line per result, a
// progress line, and a summary. Call Close or Finish at the end.
type Display struct {
	kit.Panel
	name   int // width of the column of names
	headed bool
}

// NewDisplay starts the display of a run. The width of the column of names is that of the
// longest name.
func NewDisplay(cfg DisplayConfig, names []string) *Display {
	d := &Display{name: len("scenario")}
	for _, n := range names {
		d.name = max(d.name, min(36, kit.TextWidth(textfmt.PrintableLine(n))))
	}
	d.Open(cfg)
	return d
}

// Start shows that a scenario has started on a tier.
func (d *Display) Start(name, tier string) { d.Panel.Start(label(name, tier)) }

// Done prints a result.
func (d *Display) Done(r *Result) {
	d.EndWith(label(r.Name, r.Tier), func() string {
		if d.headed {
			return d.row(r)
		}
		d.headed = true
		return d.header() + d.row(r)
	})
}

// Finish prints the summary and the paths of the report, and closes the display. It returns
// the first write error.
func (d *Display) Finish(run *Run, paths Paths) error { return d.Panel.Finish(d.summary(run), paths) }

func label(name, tier string) string {
	return strings.TrimSpace(textfmt.PrintableLine(name) + " on " + textfmt.PrintableLine(tier))
}
