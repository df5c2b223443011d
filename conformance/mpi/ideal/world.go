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

// Options are choices that the standard leaves to the runtime.
type Options struct {
	Ranks, PerNode int
	Seed           uint64
	// Eager is the size of the largest message whose standard send need not wait for
	// its receive; negative: all wait.
	Eager int
	// Polling: messages arrive at a rank only during calls.
	Polling bool
	// Steps limits the events of a run; five million if 0.
	Steps   int
	Defects Defects
}

// HungError is the error of a run that does not end.
type HungError struct {
	Waiting []string
	// Steps is the number of events, if it reached the limit.
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
	rng   *rand.Rand
	now   time.Duration
	procs []*proc
	wires []*wire // those with messages
	ops   []*op   // operations on windows, not yet applied
	ids   int
	all   *group
}

// proc is a running rank.
type proc struct {
	*world
	rank   int // in the world
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	ready  func() bool // nil: it can continue
	what   string
	inside bool // in a call
	done   bool
	err    error
	// of buffered sends
	attached, used int
	hasBuffer      bool
	until          time.Duration // end of Compute
	failure        error         // set by a defect: all later calls fail with it
}

// Run runs f for each rank and returns when all have ended. It returns the error of the first
// rank that failed, or a *HungError.
func Run(o Options, f func(cases.World) error) error {
	w := &world{Options: o, rng: rand.New(rand.NewPCG(o.Seed, 17))}
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

// start creates the coroutine of a rank.
func (w *world) start(rank int, f func(cases.World) error) *proc {
	p := &proc{world: w, rank: rank}
	p.resume, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		defer func() {
			p.done = true
			if r := recover(); r != nil && r != any(errStopped) {
				p.err = fmt.Errorf("rank %d panics: %v\n%s", rank, r, debug.Stack())
			}
		}()
		p.err = f(p.newWorld())
		if p.err == nil {
			p.blockUntil("all to end", func() bool { return true })
		}
	})
	return p
}

// run runs one rank or event at a time, until all ranks have ended.
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
		events := n + w.eventCount()
		if events == 0 {
			if !w.advanceClock() {
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
		case !w.anyEvent() && !w.advanceClock():
			return w.hung()
		}
	}
	e := w.hung()
	e.Steps = w.Steps
	return e
}

// advanceClock advances the time until the next rank has finished computing.
func (w *world) advanceClock() bool {
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

// hung returns the error that names what every rank waits for.
func (w *world) hung() *HungError {
	e := &HungError{}
	for _, p := range w.procs {
		if !p.done {
			e.Waiting = append(e.Waiting, fmt.Sprintf("rank %d for %s", p.rank, p.what))
		}
	}
	return e
}

// eventCount returns the number of events that can happen besides running a rank.
func (w *world) eventCount() int { return len(w.wires) + len(w.ops) }

// event executes one of these events, if it can happen now.
func (w *world) event(k int) bool {
	if k < len(w.wires) {
		return w.deliver(w.wires[k])
	}
	return w.ops[k-len(w.wires)].try()
}

// anyEvent executes the first event that can happen.
func (w *world) anyEvent() bool {
	for k := range w.eventCount() {
		if w.event(k) {
			return true
		}
	}
	return false
}

// blockUntil blocks the rank in a call until ready.
func (p *proc) blockUntil(what string, ready func() bool) {
	p.inside = true
	p.yieldUntil(what, ready)
	p.inside = false
}

// yieldUntil lets other ranks run until ready returns true.
func (p *proc) yieldUntil(what string, ready func() bool) {
	p.ready, p.what = ready, what
	if !p.yield(struct{}{}) {
		panic(errStopped)
	}
	p.ready, p.what = nil, ""
}

// enter begins a call: other ranks may run first.
func (p *proc) enter() {
	if p.rng.IntN(2) == 0 {
		p.letOthersRun()
	}
}

// letOthersRun lets other ranks run, as every call does that tests for completion.
func (p *proc) letOthersRun() { p.blockUntil("its turn", func() bool { return true }) }

// canReceive reports whether messages can arrive at a rank now.
func (w *world) canReceive(rank int) bool {
	p := w.procs[rank]
	return !(w.Polling || w.Defects.NothingWhileBusy) || p.inside || p.done
}
