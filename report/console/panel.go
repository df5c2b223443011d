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

// panel is where lines appear one after the other, above a line of progress where
// there is a terminal to show one on. Its methods but open and Close are called with
// mu held.
type panel struct {
	mu      sync.Mutex
	out     io.Writer
	status  Terminal  // nil if there is none
	plain   io.Writer // that stands in for it, for those who read a log
	colour  bool
	begun   time.Time
	total   int // how much is to be done
	done    int
	running []string
	parts   map[string]string // how far some of them are
	shown   bool              // a line of progress stands there
	err     error
	stop    chan struct{}
	stopped sync.WaitGroup
}

// tick is how often the line of progress is drawn anew while nothing happens, and
// logTick how often it is written where there is no terminal: somebody who looks into
// the log of a long run is to see that it gets on.
const tick = 200 * time.Millisecond

var logTick = time.Minute

// open begins to show something.
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

// animate keeps the line of progress going.
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

// start says that something is being worked on, and end that it is no more.
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

// Note prints a line of text without disturbing the line of progress.
func (d *panel) Note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(printable.Line(text) + "\n")
	d.draw()
}

// Close ends the display and takes the line of progress away. It may be called
// more than once.
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

// print writes to Out, where no line of progress may stand meanwhile.
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

// draw puts the line of progress in the place of the one before, no longer than
// what fits: a line that wraps could not be taken back.
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

// log writes the line of progress under those before.
func (d *panel) log() { fmt.Fprintln(d.plain, d.progress(100)) }

// progress names as many of the running ones as there is room for.
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

// clock is a time in whole seconds, which do not flicker.
func clock(t time.Duration) string {
	s := int(t / time.Second)
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
