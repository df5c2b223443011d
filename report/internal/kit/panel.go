package kit

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// PanelConfig configures a Panel.
type PanelConfig struct {
	// Out gets results and the summary, Status the progress line. A writer that is neither
	// an *os.File nor a Terminal is no terminal.
	Out, Status io.Writer
	// Getenv reads NO_COLOR and TERM; os.Getenv if nil.
	Getenv func(string) string
	// Total is the number of steps.
	Total int
	// Quiet omits everything but notes and the summary.
	Quiet bool
}

// Panel prints lines above a progress line on a terminal. It uses colours if the terminal
// supports them. It is safe for concurrent use.
type Panel struct {
	mu           sync.Mutex
	out          io.Writer
	quiet        bool
	status       Terminal  // nil if it is no terminal
	plain        io.Writer // writer for progress in a log, if there is no terminal
	colour       bool
	begun        time.Time
	total        int // number of steps
	done         int
	running      []string
	stepProgress map[string]string // such as " (3 of 5)", by the name of a running step
	shown        bool              // the progress line is visible
	err          error
	stop         chan struct{}
	stopped      sync.WaitGroup
}

// tick is the refresh interval of the progress line, and logTick the interval of progress
// in a log without a terminal.
const tick = 200 * time.Millisecond

var logTick = time.Minute

// Open starts the display. If Status is a terminal, it has a progress line; else a line with the
// progress is added at intervals, as in a log. If Quiet is set or Status is nil, there is neither.
// Call Close or Finish at the end.
func (d *Panel) Open(cfg PanelConfig) {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	d.out, d.quiet, d.total, d.begun, d.stop = cfg.Out, cfg.Quiet, cfg.Total, time.Now(), make(chan struct{})
	d.stepProgress = map[string]string{}
	dumb := cfg.Getenv("TERM") == "dumb"
	d.colour = columns(cfg.Out) > 0 && !dumb && cfg.Getenv("NO_COLOR") == ""
	switch {
	case cfg.Quiet || cfg.Status == nil:
	case columns(cfg.Status) > 0 && !dumb:
		d.status = terminal(cfg.Status)
		d.stopped.Go(func() { d.repeat(tick, d.draw) })
	default:
		const lineWidth = 100
		d.plain = cfg.Status
		d.stopped.Go(func() { d.repeat(logTick, func() { fmt.Fprintln(d.plain, d.progress(lineWidth)) }) })
	}
}

// repeat calls show at this interval, with the lock held, until the panel is closed.
func (d *Panel) repeat(every time.Duration, show func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-t.C:
			d.mu.Lock()
			show()
			d.mu.Unlock()
		}
	}
}

// Start adds a step of the run, such as a test case, to those that are shown as running. A step
// that is repeated before it ends is shown once.
func (d *Panel) Start(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name = cli.PrintableLine(name); !slices.Contains(d.running, name) {
		d.running = append(d.running, name)
	}
	d.draw()
}

// SetStepProgress sets how much of a running step is done. The next refresh shows it.
func (d *Panel) SetStepProgress(name string, done, total int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stepProgress[cli.PrintableLine(name)] = fmt.Sprintf(" (%d of %d)", done, total)
}

// End marks a step as finished without printing anything.
func (d *Panel) End(name string) { d.EndWith(name, func() string { return "" }) }

// EndWith marks a step as finished and prints the result of text, which it does not call if
// the panel is quiet. Calls of text are serialized.
func (d *Panel) EndWith(name string, text func() string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name = cli.PrintableLine(name)
	d.done++
	delete(d.stepProgress, name)
	if i := slices.Index(d.running, name); i >= 0 {
		d.running = slices.Delete(d.running, i, i+1)
	}
	if !d.quiet {
		d.print(text())
	}
	d.draw()
}

// Note prints a line of text above the progress line, even if the panel is quiet.
func (d *Panel) Note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(cli.PrintableLine(text) + "\n")
	d.draw()
}

// Close ends the display and removes the progress line. It may be called repeatedly.
func (d *Panel) Close() {
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

// Finish closes the display, and prints the summary and the path of the page, or those of the
// other files if there is no page. It returns the first write error.
func (d *Panel) Finish(summary string, paths Paths) error {
	d.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range []struct{ name, path string }{{"Report", paths.HTML}, {"Result", paths.Result}, {"JUnit", paths.JUnit}} {
		if p.path != "" {
			summary += fmt.Sprintf("%s: %s\n", p.name, cli.PrintableLine(p.path))
			if p.name == "Report" {
				break // the page links to the other files
			}
		}
	}
	d.print(summary)
	return d.err
}

// print removes the progress line and writes s to Out. It keeps the first error for Finish.
func (d *Panel) print(s string) {
	if s == "" {
		return
	}
	d.clear()
	if _, err := io.WriteString(d.out, s); err != nil && d.err == nil {
		d.err = err
	}
}

// clear removes the progress line, if there is one.
func (d *Panel) clear() {
	if d.shown {
		io.WriteString(d.status, "\r\x1b[K")
		d.shown = false
	}
}

// draw replaces the progress line, truncated to the width of the terminal: a wrapped line
// could not be removed. It omits the line on a terminal that is too narrow.
func (d *Panel) draw() {
	if d.status == nil {
		return
	}
	width := d.status.Columns() - 1
	if width < 10 {
		d.clear()
		return
	}
	d.shown = true
	io.WriteString(d.status, "\r\x1b[K"+Cut(d.progress(width), width))
}

// progress formats the number of steps done, the time and the running steps, as many as fit
// into this number of columns.
func (d *Panel) progress(width int) string {
	seconds := int(time.Since(d.begun) / time.Second)
	s := fmt.Sprintf("%d of %d done, %d:%02d", d.done, d.total, seconds/60, seconds%60)
	for i, name := range d.running {
		more, sep := "", ", "
		if i == 0 {
			sep = ": "
		}
		if left := len(d.running) - i - 1; left > 0 {
			more = fmt.Sprintf(" and %d more", left)
		}
		if i > 0 && TextWidth(s+sep+name+d.stepProgress[name]+more) > width {
			return s + fmt.Sprintf(" and %d more", len(d.running)-i)
		}
		s += sep + name + d.stepProgress[name]
	}
	return s
}

// Bold is the ANSI code of bold text.
const Bold = "1"

// Paint colours a text by an ANSI code if the terminal has colours.
func (d *Panel) Paint(code, s string) string {
	if !d.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Columns returns the width of Out, or 120 if Out is no terminal.
func (d *Panel) Columns() int {
	if n := columns(d.out); n > 0 {
		return n
	}
	return 120
}

// Pad appends spaces to a text of fewer than n columns.
func Pad(s string, n int) string { return s + PadLeft("", n-TextWidth(s)) }

// PadLeft prepends spaces to a text of fewer than n columns.
func PadLeft(s string, n int) string { return strings.Repeat(" ", max(0, n-TextWidth(s))) + s }
