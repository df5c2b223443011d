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

// defaultSteps is more than any case takes that ends.
const defaultSteps = 5_000_000

// Options are choices that the standard leaves to the runtime.
type Options struct {
	Ranks, PerNode int
	Seed           uint64
	// Eager is the size of the largest message whose standard send need not wait for
	// its receive; negative: all wait.
	Eager int
	// Polling: messages arrive at a rank only during calls.
	Polling bool
	// Steps limits the events of a run; defaultSteps if 0.
	Steps   int
	Defects Defects
}

// HungError is the error of a run that does not end.
type HungError struct {
	Waiting []string
	// Steps is the number of events, if it reached the limit.
	Steps int
}

// Error lists what the ranks wait for, and the number of steps if the run exceeded a limit of them.
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
	links []*messageLink // those with messages
	ops   []*op          // operations on windows, not yet applied
	all   *group
}

// proc is a running rank.
type proc struct {
	*world
	rank                   int // in the world
	resume                 func() (struct{}, bool)
	stop                   func()
	yield                  func(struct{}) bool
	ready                  func() bool // nil: it can continue
	waitingFor             string
	inCall                 bool
	done                   bool
	err                    error
	bufferSize, bufferUsed int // of the attached buffer
	hasBuffer              bool
	computeEnd             time.Duration
	stickyError            error // set by a defect: all later calls fail with it
}

// Run runs f for each rank and returns when all have ended. It returns the error of the first
// rank that failed, or a *HungError.
func Run(o Options, f func(cases.World) error) error {
	const stream = 17 // any constant: only the seed differs between runs
	w := &world{Options: o, rng: rand.New(rand.NewPCG(o.Seed, stream))}
	w.PerNode = max(w.PerNode, 1)
	if w.Steps == 0 {
		w.Steps = defaultSteps
	}
	ranks := make([]int, o.Ranks)
	for i := range ranks {
		ranks[i] = i
	}
	w.all = w.newGroup(ranks)
	for i := range o.Ranks {
		w.procs = append(w.procs, w.start(i, f))
	}
	err := w.run()
	for _, p := range w.procs {
		p.stop()
	}
	return err
}

// errStopped is the panic that unwinds a rank when Run ends before it.
var errStopped = errors.New("stopped")

// start creates the coroutine of a rank, which runs f when it is resumed.
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
			p.blockUntil("all to end", func() bool { return true }) // other ranks may run before it ends
		}
	})
	return p
}

// run resumes a rank or tries an event, at random, until all ranks have ended or one has failed.
// Events deliver a message or apply an operation on a window. If nothing can continue, or after
// w.Steps, it returns a *HungError.
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
		choices := n + w.eventCount()
		if choices == 0 {
			if !w.advanceClock() {
				return w.hungError()
			}
			continue
		}
		w.now += time.Microsecond
		k := w.rng.IntN(choices)
		switch {
		case k < n:
			runnable[k].resume()
		case w.tryEvent(k - n):
		case n > 0: // the event is not possible yet
			runnable[w.rng.IntN(n)].resume()
		case !w.tryAnyEvent() && !w.advanceClock():
			return w.hungError()
		}
	}
	e := w.hungError()
	e.Steps = w.Steps
	return e
}

// advanceClock advances the time to the end of the next Compute. It returns false if there is none.
func (w *world) advanceClock() bool {
	next := time.Duration(-1)
	for _, p := range w.procs {
		if !p.done && p.waitingFor == computing && (next < 0 || p.computeEnd < next) {
			next = p.computeEnd
		}
	}
	if next < 0 {
		return false
	}
	w.now = max(w.now, next)
	return true
}

// hungError returns an error that says for what each rank waits.
func (w *world) hungError() *HungError {
	e := &HungError{}
	for _, p := range w.procs {
		if !p.done {
			e.Waiting = append(e.Waiting, fmt.Sprintf("rank %d for %s", p.rank, p.waitingFor))
		}
	}
	return e
}

// eventCount returns the number of events that tryEvent can try.
func (w *world) eventCount() int { return len(w.links) + len(w.ops) }

// tryEvent executes event k, and reports whether that was possible: the delivery of a message of
// link k or, after the links, an operation on a window.
func (w *world) tryEvent(k int) bool {
	if k < len(w.links) {
		return w.deliver(w.links[k])
	}
	return w.ops[k-len(w.links)].tryApply()
}

// tryAnyEvent executes the first event that is possible, and reports whether there was one.
func (w *world) tryAnyEvent() bool {
	for k := range w.eventCount() {
		if w.tryEvent(k) {
			return true
		}
	}
	return false
}

// blockUntil blocks the rank in an MPI call until ready returns true. The HungError of a deadlock
// has waitingFor as the reason of the wait.
func (p *proc) blockUntil(waitingFor string, ready func() bool) {
	p.inCall = true
	p.yieldUntil(waitingFor, ready)
	p.inCall = false
}

// yieldUntil suspends this rank, and lets other ranks run. The scheduler resumes the rank when ready
// returns true. waitingFor is the reason of the wait, for the HungError of a deadlock.
func (p *proc) yieldUntil(waitingFor string, ready func() bool) {
	p.ready, p.waitingFor = ready, waitingFor
	if !p.yield(struct{}{}) {
		panic(errStopped) // Run has ended: unwind the rank
	}
	p.ready, p.waitingFor = nil, ""
}

// yieldSometimes is called at the start of an MPI call. At random, it lets other ranks run first.
func (p *proc) yieldSometimes() {
	if p.rng.IntN(2) == 0 {
		p.letOthersRun()
	}
}

// letOthersRun lets other ranks run. Calls such as Test use it, so that a loop of them can end.
func (p *proc) letOthersRun() { p.blockUntil("its turn", func() bool { return true }) }

// canReceive reports whether messages can arrive at a rank: always, but with Polling (or a defect)
// only while the rank is in a call, or after its end.
func (w *world) canReceive(rank int) bool {
	p := w.procs[rank]
	return !(w.Polling || w.Defects.NothingWhileBusy) || p.inCall || p.done
}
