package sim

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
)

// Run runs the world until no event and no runnable program is left. It returns
// nil if every program has ended, a *DeadlockError if one is parked forever, a
// *LimitError if a limit of the Config was reached, and a *ProgramError or
// *PanicError as soon as a program fails.
//
// An error ends the world: parked programs are unwound, running their deferred
// calls, and the world cannot be run again.
func (w *World) Run() error { return w.run(mono.Never, false) }

// RunUntil runs everything due up to and including t and leaves the world at
// time t. Parked programs are not an error. The world can be run further.
func (w *World) RunUntil(t mono.Time) error { return w.run(t, false) }

// RunPrograms runs until every program has ended and leaves the remaining
// events (timers, packets in flight) in the queue. Errors are those of Run.
func (w *World) RunPrograms() error { return w.run(mono.Never, true) }

// Close unwinds the parked programs and ends the world. It is not needed after
// Run has returned, with or without an error.
func (w *World) Close() {
	if w.running {
		panic("sim: Close of a world from inside it: let the programs return instead")
	}
	w.end(nil)
}

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

// loop runs all events of an instant before its programs, so that programs
// woken at the same instant compete fairly.
func (w *World) loop(programsOnly bool) error {
	for {
		if programsOnly && len(w.procs) == 0 {
			return nil
		}
		if w.events >= w.cfg.MaxEvents {
			return &LimitError{Limit: "events", Now: w.now, Events: w.events, Waiting: w.waitingPrograms()}
		}
		if w.events%stopInterval == 0 && w.cfg.Stop != nil {
			if err := w.cfg.Stop(); err != nil {
				return err
			}
		}
		next, ok := w.queue.peek()
		switch {
		case ok && next.at <= w.now:
			w.runNextEvent()
		case len(w.ready) > 0:
			if err := w.resume(w.pickReady()); err != nil {
				return err
			}
		case !ok:
			if w.horizon == mono.Never && len(w.procs) > 0 {
				return &DeadlockError{Now: w.now, Waiting: w.waitingPrograms()}
			}
			return nil
		case next.at > w.horizon:
			return nil
		case next.at > w.cfg.MaxTime:
			return &LimitError{Limit: "time", Now: w.now, Events: w.events, Waiting: w.waitingPrograms()}
		default:
			w.now = next.at
			w.runNextEvent()
		}
	}
}

// runNextEvent runs the first event of the queue, which is due.
func (w *World) runNextEvent() {
	w.events++
	s := w.queue.removeTop()
	if t := s.timer; t != nil {
		t.due, t.pos = mono.Never, notQueued
		t.h.HandleEvent(w.now, t.arg)
		return
	}
	s.h.HandleEvent(w.now, s.arg)
}

// pickReady chooses the next program to run and removes it from the ready list.
func (w *World) pickReady() *Proc {
	i := w.Choose("run", len(w.ready))
	p := w.ready[i]
	copy(w.ready[i:], w.ready[i+1:])
	w.ready[len(w.ready)-1] = nil
	w.ready = w.ready[:len(w.ready)-1]
	return p
}

// end unwinds all programs and drops all events.
func (w *World) end(err error) {
	if w.ended {
		return
	}
	w.ended, w.err = true, err
	w.queue = queue{}
	w.ready = nil
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
