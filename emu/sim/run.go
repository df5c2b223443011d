package sim

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/goroutine"
)

// Run runs the world until nothing is left to do. It returns nil if every
// program has ended by then; a *DeadlockError if one is parked that nothing will
// wake; a *LimitError if a limit of the Config was reached; and a *ProgramError
// or *PanicError as soon as a program ends with an error or a panic.
//
// An error ends the world: programs that are still parked are unwound, running
// their deferred calls, and nothing runs in this world any more.
func (w *World) Run() error { return w.run(mono.Never, false) }

// RunUntil runs everything due up to and including t, and leaves the world at
// time t, to be run further. Programs still parked are no error: what wakes them
// may come later.
func (w *World) RunUntil(t mono.Time) error { return w.run(t, false) }

// RunPrograms runs until every program has ended and leaves the rest (timers of
// a NIC gone idle, packets in flight) where it stands. Errors are those of Run.
func (w *World) RunPrograms() error { return w.run(mono.Never, true) }

// Close unwinds the programs that are still parked and ends the world. A world
// that Run has taken to its end needs no Close.
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
	w.running, w.horizon, w.goroutine = true, horizon, goroutine.Self()
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

var errAbandoned = errors.New("the world was abandoned by a panic or an exit inside it")

// loop runs events and programs in turn. All events of an instant come before
// its programs, so that programs woken at one instant compete fairly.
func (w *World) loop(programsOnly bool) error {
	for {
		if programsOnly && len(w.procs) == 0 {
			return nil
		}
		if w.events >= w.cfg.MaxEvents {
			return &LimitError{Limit: "events", Now: w.now, Events: w.events, Waiting: w.waiting()}
		}
		if w.events%stopEvery == 0 && w.cfg.Stop != nil {
			if err := w.cfg.Stop(); err != nil {
				return err
			}
		}
		next, ok := w.queue.peek()
		switch {
		case ok && next.at <= w.now:
			w.fire()
		case len(w.ready) > 0:
			if err := w.resume(w.takeReady()); err != nil {
				return err
			}
		case !ok:
			if w.horizon == mono.Never && len(w.procs) > 0 {
				return &DeadlockError{Now: w.now, Waiting: w.waiting()}
			}
			return nil
		case next.at > w.horizon:
			return nil
		case next.at > w.cfg.MaxTime:
			return &LimitError{Limit: "time", Now: w.now, Events: w.events, Waiting: w.waiting()}
		default:
			w.now = next.at
			w.fire()
		}
	}
}

// fire runs the event at the top of the heap, whose time has come.
func (w *World) fire() {
	w.events++
	s := w.queue.removeTop()
	if t := s.timer; t != nil {
		t.due, t.pos = mono.Never, notQueued
		t.h.HandleEvent(w.now, t.arg)
		return
	}
	s.h.HandleEvent(w.now, s.arg)
}

// takeReady chooses the next program to run among those that can.
func (w *World) takeReady() *Proc {
	i := w.Choose("run", len(w.ready))
	p := w.ready[i]
	copy(w.ready[i:], w.ready[i+1:])
	w.ready[len(w.ready)-1] = nil
	w.ready = w.ready[:len(w.ready)-1]
	return p
}

// end unwinds what is parked and lets nothing run any more.
func (w *World) end(err error) {
	if w.ended {
		return
	}
	w.ended, w.err = true, err
	w.queue = queue{}
	w.ready = nil
	w.unwind()
}

// unwind stops the programs, newest first. It calls itself deferred because a
// program may leave with runtime.Goexit, which would cut a loop short.
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
	if p.panicked() { // in a deferred call: do not hide it
		w.err = errors.Join(w.err, p.err)
	}
}
