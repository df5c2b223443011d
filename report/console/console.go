// Package console prints the progress and the results of a run on a terminal: a line per
// result, a progress line on a terminal, and a summary. It uses colours if the terminal
// supports them, and plain text otherwise.
//
// A Display is safe for concurrent use.
package console

import (
	"io"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/report"
)

// Config configures a Display.
type Config struct {
	// Out gets results and the summary, Status the progress line. A writer that is neither
	// an *os.File nor a Terminal is no terminal.
	Out, Status io.Writer
	// Getenv reads NO_COLOR and TERM; os.Getenv if nil.
	Getenv func(string) string
	// Total is the number of results, and Names are the scenarios' names, for the width of
	// their column.
	Total int
	Names []string
	// Quiet omits everything but the summary.
	Quiet bool
}

// Terminal is a terminal.
type Terminal interface {
	io.Writer
	// Columns is the current width in characters; 0 if it is no terminal.
	Columns() int
}

// Display prints a run. Call Close or Finish at the end.
type Display struct {
	panel
	cfg    Config
	name   int // width of the column of names
	headed bool
}

// New starts the display of a run.
func New(cfg Config) *Display {
	d := &Display{}
	d.open(&cfg)
	d.cfg = cfg
	for _, n := range cfg.Names {
		d.name = min(36, max(d.name, width(printable.Line(n))))
	}
	d.name = max(d.name, len("scenario"))
	return d
}

// Start shows that a scenario has started on a tier.
func (d *Display) Start(name, tier string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start(label(name, tier))
	d.draw()
}

// Done prints a result.
func (d *Display) Done(r *report.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end(label(r.Name, r.Tier))
	if !d.cfg.Quiet {
		if !d.headed {
			d.headed = true
			d.print(d.header())
		}
		d.print(d.row(r))
	}
	d.draw()
}

// Finish prints the summary and the paths of the report, and closes the display. It returns
// the first write error.
func (d *Display) Finish(run *report.Run, paths report.Paths) error {
	d.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(d.summary(run, paths))
	return d.err
}
