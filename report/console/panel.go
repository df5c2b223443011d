package console

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/internal/printable"
)

// panel prints lines above a progress line on a terminal. All methods but open and Close
// need mu.
type panel struct {
	mu      sync.Mutex
	out     io.Writer
	status  Terminal  // nil if it is no terminal
	plain   io.Writer // writer for progress in a log, if there is no terminal
	colour  bool
	begun   time.Time
	total   int // number of steps
	done    int
	running []string
	parts   map[string]string // progress of running steps
	shown   bool              // the progress line is visible
	err     error
	stop    chan struct{}
	stopped sync.WaitGroup
}

// tick is the refresh interval of the progress line, and logTick the interval of progress
// in a log without a terminal.
const tick = 200 * time.Millisecond

var logTick = time.Minute

// open starts the display.
func (d *panel) open(cfg *Config) {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	d.out, d.total, d.begun, d.stop = cfg.Out, cfg.Total, time.Now(), make(chan struct{})
	dumb := cfg.Getenv("TERM") == "dumb"
	d.colour = columns(cfg.Out) > 0 && !dumb && cfg.Getenv("NO_COLOR") == ""
	switch {
	case cfg.Quiet || cfg.Status == nil:
	case columns(cfg.Status) > 0 && !dumb:
		d.status = terminal(cfg.Status)
		d.stopped.Go(func() { d.animate(tick, d.draw) })
	default:
		d.plain = cfg.Status
		d.stopped.Go(func() { d.animate(logTick, d.log) })
	}
}

// animate refreshes the progress line.
func (d *panel) animate(every time.Duration, step func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-t.C:
			d.mu.Lock()
			step()
			d.mu.Unlock()
		}
	}
}

// start and end mark a step as running and as finished.
func (d *panel) start(name string) { d.running = append(d.running, name) }

func (d *panel) end(name string) {
	d.done++
	delete(d.parts, name)
	for i := range d.running {
		if d.running[i] == name {
			d.running = append(d.running[:i], d.running[i+1:]...)
			return
		}
	}
}

// Note prints a line of text above the progress line.
func (d *panel) Note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(printable.Line(text) + "\n")
	d.draw()
}

// Close ends the display and removes the progress line. It may be called repeatedly.
func (d *panel) Close() {
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

// print writes to Out with the progress line removed.
func (d *panel) print(s string) {
	d.clear()
	if _, err := io.WriteString(d.out, s); err != nil && d.err == nil {
		d.err = err
	}
}

func (d *panel) clear() {
	if d.shown {
		io.WriteString(d.status, "\r\x1b[K")
		d.shown = false
	}
}

// draw replaces the progress line, truncated to the width: a wrapped line cannot be
// removed.
func (d *panel) draw() {
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

// log writes the progress as a line of a log.
func (d *panel) log() { fmt.Fprintln(d.plain, d.progress(100)) }

// progress formats the progress, with as many running steps as fit.
func (d *panel) progress(room int) string {
	s := fmt.Sprintf("%d of %d done, %s", d.done, d.total, clock(time.Since(d.begun)))
	for i, name := range d.running {
		more, sep := "", ", "
		if i == 0 {
			sep = ": "
		}
		if left := len(d.running) - i - 1; left > 0 {
			more = fmt.Sprintf(" and %d more", left)
		}
		if i > 0 && width(s+sep+name+d.parts[name]+more) > room {
			return s + fmt.Sprintf(" and %d more", len(d.running)-i)
		}
		s += sep + name + d.parts[name]
	}
	return s
}

func label(name, tier string) string {
	return strings.TrimSpace(printable.Line(name) + " on " + printable.Line(tier))
}

// clock formats a time in whole seconds.
func clock(t time.Duration) string {
	s := int(t / time.Second)
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
