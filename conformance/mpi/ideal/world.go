package ideal

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
)

// Options are what the ideal runtime may do as it likes.
type Options struct {
	Ranks, PerNode int
	Seed           uint64
	// Eager is the size of the largest message whose standard send need not wait for
	// its receive; negative: all wait.
	Eager int
	// Polling: nothing arrives at a rank that is not inside of a call.
	Polling bool
	// Steps is how much may happen before a run counts as endless; five million if 0.
	Steps   int
	Defects Defects
}

// HungError says that the ranks would never have ended.
type HungError struct {
	Waiting []string
	// Steps is how much has happened, if that was too much.
	Steps int
}

func (e *HungError) Error() string {
	if e.Steps > 0 {
		return fmt.Sprintf("no end after %d steps: %s", e.Steps, strings.Join(e.Waiting, "; "))
	}
	return "all ranks wait: " + strings.Join(e.Waiting, "; ")
}

type world struct {
	Options
	fl    *Defects
	rng   *rand.Rand
	now   time.Duration
	procs []*proc
	wires []*wire // those with something on them
	ops   []*op   // of windows, not yet carried out
	ids   int
	all   *group
}

// proc is a rank that runs.
type proc struct {
	w      *world
	rank   int
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	ready  func() bool // nil: it can go on
	what   string
	inside bool // of a call
	done   bool
	err    error
	// of buffered sends
	attached, used int
	hasBuffer      bool
	until          time.Duration // what it computes
	shut           error         // after a defect that wedges
}

// Run runs f once for each rank and returns when all have ended: with what the first
// rank that failed returned, or a *HungError.
func Run(o Options, f func(cases.World) error) error {
	w := &world{Options: o, rng: rand.New(rand.NewPCG(o.Seed, 17))}
	w.fl = &w.Defects
	w.PerNode = max(w.PerNode, 1)
	if w.Steps == 0 {
		w.Steps = 5_000_000
	}
	ranks := make([]int, o.Ranks)
	for i := range ranks {
		ranks[i] = i
	}
	w.all = w.group(ranks)
	for i := range o.Ranks {
		w.procs = append(w.procs, w.start(i, f))
	}
	err := w.run()
	for _, p := range w.procs {
		p.stop()
	}
	return err
}

var errStopped = errors.New("stopped")

func (w *world) start(rank int, f func(cases.World) error) *proc {
	p := &proc{w: w, rank: rank}
	p.resume, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		defer func() {
			p.done = true
			if r := recover(); r != nil && r != any(errStopped) {
				p.err = fmt.Errorf("rank %d panics: %v\n%s", rank, r, debug.Stack())
			}
		}()
		p.err = f(p.world())
		if p.err == nil {
			p.park("all to end", func() bool { return true })
		}
	})
	return p
}

// run lets one thing happen at a time, until all ranks have ended.
func (w *world) run() error {
	runnable := make([]*proc, 0, len(w.procs))
	for range w.Steps {
		runnable = runnable[:0]
		ended := 0
		for _, p := range w.procs {
			switch {
			case p.done:
				if p.err != nil {
					return p.err
				}
				ended++
			case p.ready == nil || p.ready():
				runnable = append(runnable, p)
			}
		}
		if ended == len(w.procs) {
			return nil
		}
		n := len(runnable)
		events := n + w.pendings()
		if events == 0 {
			if !w.skip() {
				return w.hung()
			}
			continue
		}
		w.now += time.Microsecond
		k := w.rng.IntN(events)
		switch {
		case k < n:
			runnable[k].resume()
		case w.event(k - n):
		case n > 0:
			runnable[w.rng.IntN(n)].resume()
		case !w.anyEvent() && !w.skip():
			return w.hung()
		}
	}
	e := w.hung()
	e.Steps = w.Steps
	return e
}

// skip lets the time pass until the next rank has done its computing.
func (w *world) skip() bool {
	next := time.Duration(-1)
	for _, p := range w.procs {
		if !p.done && p.what == computing && (next < 0 || p.until < next) {
			next = p.until
		}
	}
	if next < 0 {
		return false
	}
	w.now = max(w.now, next)
	return true
}

func (w *world) hung() *HungError {
	e := &HungError{}
	for _, p := range w.procs {
		if !p.done {
			e.Waiting = append(e.Waiting, fmt.Sprintf("rank %d for %s", p.rank, p.what))
		}
	}
	return e
}

// pendings is how many things may happen besides ranks that run.
func (w *world) pendings() int { return len(w.wires) + len(w.ops) }

// event has one of them happen, if it can at the moment.
func (w *world) event(k int) bool {
	if k < len(w.wires) {
		return w.deliver(w.wires[k])
	}
	return w.ops[k-len(w.wires)].try()
}

// anyEvent has the first happen that can.
func (w *world) anyEvent() bool {
	for k := range w.pendings() {
		if w.event(k) {
			return true
		}
	}
	return false
}

// park waits inside of a call.
func (p *proc) park(what string, ready func() bool) {
	p.inside = true
	p.hold(what, ready)
	p.inside = false
}

func (p *proc) hold(what string, ready func() bool) {
	p.ready, p.what = ready, what
	if !p.yield(struct{}{}) {
		panic(errStopped)
	}
	p.ready, p.what = nil, ""
}

// enter begins a call: others may go on first.
func (p *proc) enter() {
	if p.w.rng.IntN(2) == 0 {
		p.look()
	}
}

// look lets others go on, as every call does that asks whether something has happened.
func (p *proc) look() { p.park("its turn", func() bool { return true }) }

// attends reports whether something can arrive at a rank.
func (w *world) attends(rank int) bool {
	p := w.procs[rank]
	return !(w.Polling || w.fl.NothingWhileBusy) || p.inside || p.done
}
