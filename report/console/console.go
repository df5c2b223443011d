// Package console shows a run on a terminal while it goes on, and what came of it
// at the end: a line for each result, a line of progress where there is a
// terminal to show it on, colours where they are wanted, and plain text
// everywhere else. It decides nothing and never reads.
//
// A Display may be used from several goroutines.
package console

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

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
	mu      sync.Mutex
	cfg     Config
	status  Terminal // nil if there is none
	colour  bool
	name    int // width of the column of names
	begun   time.Time
	done    int
	running []string
	headed  bool
	shown   bool // a line of progress stands there
	err     error
	stop    chan struct{}
	stopped sync.WaitGroup
}

// tick is how often the line of progress is drawn anew while nothing happens.
const tick = 200 * time.Millisecond

// New begins to show a run.
func New(cfg Config) *Display {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	d := &Display{cfg: cfg, begun: time.Now(), stop: make(chan struct{})}
	dumb := cfg.Getenv("TERM") == "dumb"
	d.colour = columns(cfg.Out) > 0 && !dumb && cfg.Getenv("NO_COLOR") == ""
	for _, n := range cfg.Names {
		d.name = min(36, max(d.name, width(report.Visible(n))))
	}
	d.name = max(d.name, len("scenario"))
	if columns(cfg.Status) > 0 && !dumb && !cfg.Quiet {
		d.status = terminal(cfg.Status)
		d.stopped.Go(d.animate)
	}
	return d
}

// animate keeps the time in the line of progress going.
func (d *Display) animate() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-t.C:
			d.mu.Lock()
			d.draw()
			d.mu.Unlock()
		}
	}
}

// Start says that a result is being worked on.
func (d *Display) Start(name, tier string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = append(d.running, label(name, tier))
	d.draw()
}

// Done shows a result.
func (d *Display) Done(r *report.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done++
	id := label(r.Name, r.Tier)
	for i := range d.running {
		if d.running[i] == id {
			d.running = append(d.running[:i], d.running[i+1:]...)
			break
		}
	}
	if !d.cfg.Quiet {
		if !d.headed {
			d.headed = true
			d.print(d.header())
		}
		d.print(d.row(r))
	}
	d.draw()
}

// Note prints a line of text without disturbing the line of progress.
func (d *Display) Note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(report.Visible(text) + "\n")
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

// Close ends the display and takes the line of progress away. It may be called
// more than once.
func (d *Display) Close() {
	d.mu.Lock()
	select {
	case <-d.stop:
	default:
		close(d.stop)
	}
	d.clear()
	d.status = nil
	d.mu.Unlock()
	d.stopped.Wait()
}

// print writes to Out, where no line of progress may stand meanwhile.
func (d *Display) print(s string) {
	d.clear()
	if _, err := io.WriteString(d.cfg.Out, s); err != nil && d.err == nil {
		d.err = err
	}
}

func (d *Display) clear() {
	if d.shown {
		io.WriteString(d.status, "\r\x1b[K")
		d.shown = false
	}
}

// draw puts the line of progress in the place of the one before, no longer than
// what fits: a line that wraps could not be taken back.
func (d *Display) draw() {
	if d.status == nil {
		return
	}
	room := d.status.Columns() - 1
	if room < 10 {
		d.clear()
		return
	}
	d.shown = true
	io.WriteString(d.status, "\r\x1b[K"+cut(d.progress(room), room))
}

// progress names as many of the running ones as there is room for.
func (d *Display) progress(room int) string {
	s := fmt.Sprintf("%d of %d done, %s", d.done, d.cfg.Total, clock(time.Since(d.begun)))
	for i, name := range d.running {
		more, sep := "", ", "
		if i == 0 {
			sep = ": "
		}
		if left := len(d.running) - i - 1; left > 0 {
			more = fmt.Sprintf(" and %d more", left)
		}
		if i > 0 && width(s+sep+name+more) > room {
			return s + fmt.Sprintf(" and %d more", len(d.running)-i)
		}
		s += sep + name
	}
	return s
}

func label(name, tier string) string {
	return strings.TrimSpace(report.Visible(name) + " on " + report.Visible(tier))
}

// clock is a time in whole seconds, which do not flicker.
func clock(t time.Duration) string {
	s := int(t / time.Second)
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
