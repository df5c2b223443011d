// Package console shows a run on a terminal while it goes on, and what came of it
// at the end: a line for each result, a line of progress where there is a
// terminal to show it on, colours where they are wanted, and plain text
// everywhere else. It decides nothing and never reads.
//
// A Display may be used from several goroutines.
package console

import (
	"io"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/report"
)

// Config says where and what to show.
type Config struct {
	// Out gets results and the summary, Status the line of progress. Each is an
	// *os.File, a Terminal, or anything else, which then is no terminal.
	Out, Status io.Writer
	// Getenv is os.Getenv if nil. NO_COLOR and TERM are looked at.
	Getenv func(string) string
	// Total is how many results there will be, and Names are the scenarios', for
	// the width of their column.
	Total int
	Names []string
	// Quiet leaves out everything but the summary.
	Quiet bool
}

// Terminal is a writer that shows what it is sent.
type Terminal interface {
	io.Writer
	// Columns is how many characters fit into a line now; 0 if it is no terminal.
	Columns() int
}

// Display is a run on a terminal. Close must be called; Finish does.
type Display struct {
	panel
	cfg    Config
	name   int // width of the column of names
	headed bool
}

// New begins to show a run.
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

// Start shows that a scenario has begun to run on a tier.
func (d *Display) Start(name, tier string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start(label(name, tier))
	d.draw()
}

// Done shows a result.
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

// Finish shows what came of the run and where its report is, and closes the
// display. It returns the first error of writing.
func (d *Display) Finish(run *report.Run, paths report.Paths) error {
	d.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(d.summary(run, paths))
	return d.err
}
