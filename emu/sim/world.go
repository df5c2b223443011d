// Package sim is a deterministic discrete-event simulator: time is virtual,
// events run in order of (time, sequence), and the programs of the ranks are
// coroutines of which exactly one runs at a time. Two runs with the same seed
// write the same trace, byte for byte, on any machine.
//
// A world holds three kinds of objects:
//
//   - Handlers, which an event calls at its time ([World.At], [Timer]). NICs,
//     links and schedules are handlers. They never block.
//   - Programs ([World.Go]), which block: a blocking call parks the coroutine
//     and the world chooses the next program.
//   - Networks ([Net]): ports joined by a cable, a switch, or several switches
//     with trunks between them. They carry datagrams and byte streams, with the
//     impairments of package impair.
//
// A running world can be changed: links go down and up, networks partition and
// heal, impairments and rates are replaced, programs are paused or killed.
//
// All events of an instant run before its programs. Programs that become
// runnable at the same time compete, and [World.Choose] decides. Every other
// random decision (loss, jitter, segment lengths) comes from [World.Rand],
// which has one independent random stream per name: adding a component does not
// change the decisions of the others.
//
// The package implements no protocol, reads no clock, opens no socket and
// starts no thread. A world belongs to the goroutine that calls Run; nothing
// here is safe for concurrent use. A goroutine that a program starts panics
// with a [*WrongGoroutineError] when it calls into the world.
package sim

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
)

// Default limits of a Config. They are far beyond any sensible run and turn a
// run that never ends into an error.
const (
	DefaultMaxEvents uint64    = 4_000_000_000
	DefaultMaxTime   mono.Time = mono.Time(1000 * time.Hour)
)

// stopInterval is the number of events between two calls of Config.Stop.
const stopInterval = 1 << 14

// Config configures a World.
type Config struct {
	// Seed determines every choice and every random stream.
	Seed uint64
	// MaxEvents and MaxTime abort a run with a LimitError; 0 means the
	// defaults.
	MaxEvents uint64
	MaxTime   mono.Time
	// Chooser makes the choices; nil means randomly, from the seed.
	Chooser Chooser
	// Reorder is how late an event may be. Among the events and the runnable programs whose times
	// differ by at most Reorder, any may be next, except that packets of one cable and segments of
	// one stream keep their order. 0 runs all in the order of their times.
	Reorder time.Duration
	// Faults is how many packets may be lost, duplicated or exchanged with the next one, at the
	// choice of the Chooser.
	Faults int
	// Stop, if not nil, is polled during the run. An error that it returns ends
	// the world. It lets a caller interrupt the run and does not affect the
	// simulation.
	Stop func() error
	// Trace, if not nil, receives one line of text for every step.
	Trace io.Writer
}

// Handler handles an event. It must not block, and it runs outside of any
// program: Current is nil.
type Handler interface {
	HandleEvent(now mono.Time, arg uint64)
}

// HandlerFunc is a function that implements Handler.
type HandlerFunc func(now mono.Time, arg uint64)

// HandleEvent calls f.
func (f HandlerFunc) HandleEvent(now mono.Time, arg uint64) { f(now, arg) }

type funcHandler func()

func (f funcHandler) HandleEvent(mono.Time, uint64) { f() }

// World holds virtual time, the event queue and the programs.
type World struct {
	cfg    Config
	now    mono.Time
	queue  queue
	events uint64 // events and program steps that have run
	// nextCheck is the number of events after which limits are checked and Config.Stop is called.
	nextCheck uint64
	programs
	runState

	chooser  Chooser
	reorder  reorder
	faults   int // that may still be chosen
	rands    map[string]*rand.Rand
	netNames map[string]bool // names in use
	lastTag  uint32          // Tag of the last packet shown to a Tap
	batches  batches
	trace    trace

	noSleepShortcut bool // Sleep always parks: events are reordered, or a test sets it
}

// programs are the programs of a world.
type programs struct {
	procs   []*Proc // programs that have not ended, oldest first
	ready   readyList
	current *Proc
}

// runState is the state of Run.
type runState struct {
	running   bool
	horizon   mono.Time // end of the current Run
	goroutine uintptr   // the one that called Run; see checkGoroutine
	ended     bool
	err       error
}

// New returns a world (a simulation in virtual time) at time 0 without events or programs.
func New(cfg Config) *World {
	cfg.MaxEvents, cfg.MaxTime = cmp.Or(cfg.MaxEvents, DefaultMaxEvents), cmp.Or(cfg.MaxTime, DefaultMaxTime)
	w := &World{cfg: cfg, chooser: cfg.Chooser, rands: make(map[string]*rand.Rand), netNames: make(map[string]bool)}
	w.trace.out = cfg.Trace
	w.faults, w.noSleepShortcut = cfg.Faults, cfg.Reorder > 0
	if w.chooser == nil {
		w.chooser = randomChooser{w.Rand("world/choose")}
	}
	return w
}

// Now returns the virtual time.
func (w *World) Now() mono.Time { return w.now }

// Seed returns Config.Seed.
func (w *World) Seed() uint64 { return w.cfg.Seed }

// Events returns the number of events and program steps that have run.
func (w *World) Events() uint64 { return w.events }

// At runs h with arg at time t. A time in the past means now, after the events
// already due now; mono.Never means not at all.
func (w *World) At(t mono.Time, h Handler, arg uint64) {
	if t == mono.Never || w.ended { // the deferred calls of programs may schedule after the end
		return
	}
	w.queue.push(max(t, w.now), h, arg)
}

// After runs h with arg after d.
func (w *World) After(d time.Duration, h Handler, arg uint64) { w.At(w.now.Add(d), h, arg) }

// AtFunc runs f at time t; see At.
func (w *World) AtFunc(t mono.Time, f func()) { w.At(t, funcHandler(f), 0) }

// AfterFunc runs f after d.
func (w *World) AfterFunc(d time.Duration, f func()) { w.At(w.now.Add(d), funcHandler(f), 0) }

const untilIdle, untilProgramsEnd = false, true // values of run's parameter programsOnly

// Run runs the world until no event and no runnable program is left. It returns
// nil if every program has ended, a *DeadlockError if one is parked forever, a
// *LimitError if a limit of the Config was reached, and a *ProgramError or
// *PanicError as soon as a program fails.
//
// An error ends the world: parked programs are unwound, running their deferred
// calls, and the world cannot be run again.
func (w *World) Run() error { return w.run(mono.Never, untilIdle) }

// RunUntil runs everything due up to and including t and leaves the world at
// time t. Parked programs are not an error. The world can be run further.
func (w *World) RunUntil(t mono.Time) error { return w.run(t, untilIdle) }

// RunPrograms runs until every program has ended and leaves the remaining
// events (timers, packets in flight) in the queue. Errors are those of Run.
func (w *World) RunPrograms() error { return w.run(mono.Never, untilProgramsEnd) }

// Close ends the world, and the programs that wait in it: their deferred calls run. It is not
// needed after Run has returned, with or without an error.
func (w *World) Close() {
	if w.running {
		panic("sim: Close of a world from inside it: let the programs return instead")
	}
	w.end(nil)
}

// run handles events and runs programs up to the time horizon. With programsOnly it stops when all
// programs have ended.
func (w *World) run(horizon mono.Time, programsOnly bool) (err error) {
	if w.running {
		panic("sim: Run of a world from inside it: park the program (Wait, Sleep) instead")
	}
	if w.ended {
		return w.err
	}
	w.running, w.horizon, w.goroutine = true, horizon, process.Goroutine()
	finished := false
	defer func() {
		w.running = false
		if !finished { // a handler panicked, or a program called runtime.Goexit
			w.end(errAbandoned)
		}
	}()
	err = w.loop(programsOnly)
	finished = true
	if err != nil {
		w.end(err)
		return w.err
	}
	if horizon != mono.Never {
		w.now = max(w.now, horizon)
	}
	return nil
}

var errAbandoned = errors.New("the run was aborted by a panic or runtime.Goexit")

// loop runs events and programs until the horizon or until no event is left; with programsOnly,
// until all programs have ended. It returns an error if a program fails, at a limit of the config,
// and if programs wait for ever. All events of an instant come before its programs, so that
// pickReady chooses among all that are woken then.
func (w *World) loop(programsOnly bool) error {
	if w.cfg.Reorder > 0 {
		return w.loopReordered(programsOnly)
	}
	for {
		if programsOnly && len(w.procs) == 0 {
			return nil
		}
		if w.events >= w.nextCheck {
			if err := w.check(); err != nil {
				return err
			}
		}
		at, ok := w.queue.peek()
		switch {
		case ok && at <= w.now:
			h, arg := w.takeEvent()
			h.HandleEvent(w.now, arg)
		case w.ready.len() > 0:
			if err := w.resume(w.pickReady()); err != nil {
				return err
			}
		case !ok:
			if w.horizon == mono.Never && len(w.procs) > 0 {
				return &DeadlockError{Now: w.now, Waiting: w.waitingPrograms()}
			}
			return nil
		case at > w.horizon:
			return nil
		case at > w.cfg.MaxTime:
			return &LimitError{Limit: "time", Now: w.now, Events: w.events, Waiting: w.waitingPrograms()}
		default:
			w.now = at
			h, arg := w.takeEvent()
			h.HandleEvent(w.now, arg)
		}
	}
}

// check returns an error if the limit of events is reached, or Config.Stop returns one.
func (w *World) check() error {
	if w.events >= w.cfg.MaxEvents {
		return &LimitError{Limit: "events", Now: w.now, Events: w.events, Waiting: w.waitingPrograms()}
	}
	w.nextCheck = min(w.cfg.MaxEvents, w.events+stopInterval)
	if w.cfg.Stop != nil {
		return w.cfg.Stop()
	}
	return nil
}

// takeEvent removes the first event of the queue, which is due, and returns its handler. The caller
// runs it: handlers call each other so deeply that a processor predicts the returns of some wrongly.
func (w *World) takeEvent() (Handler, uint64) {
	w.events++
	s := w.queue.removeTop()
	if t := s.timer; t != nil {
		t.due, t.pos = mono.Never, notQueued
		return t.h, t.arg
	}
	return s.h, s.arg
}

// pickReady chooses the next program to run and removes it from the ready list.
func (w *World) pickReady() *Proc {
	l := &w.ready
	return l.take(w.chooseEntity("run", l.len(), func(i int) any { return l.procs[l.numbers[i]] }))
}

// end drops all events and ends all programs (deferred calls run). Run returns err from then on.
func (w *World) end(err error) {
	if w.ended {
		return
	}
	w.ended, w.err = true, err
	w.queue = queue{}
	w.ready = readyList{}
	w.unwind()
}

// unwind stops the programs, newest first. It defers its own next call because
// a program may exit with runtime.Goexit, which would end a loop.
func (w *World) unwind() {
	if len(w.procs) == 0 {
		return
	}
	defer w.unwind()
	p := w.procs[len(w.procs)-1]
	w.procs = w.procs[:len(w.procs)-1]
	w.current = p
	defer func() { w.current = nil }()
	p.unwinding = true
	p.stop()
	if p.panicked() { // in a deferred call: report it
		w.err = errors.Join(w.err, p.err)
	}
}
