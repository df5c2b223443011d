package sim

import (
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
)

// Proc is a program of a world: a coroutine that runs until it parks in a
// blocking call. Only the program itself may call the blocking methods.
type Proc struct {
	w      *World
	name   string
	number int // in World.ready
	// goroutine runs the program, once it has started.
	goroutine uintptr

	next func() (struct{}, bool) // resumes the program until it parks
	stop func()                  // makes the current park unwind
	park func(struct{}) bool

	timer            Timer
	signal           *Signal // that it waits for, or nil
	waitReason       fmt.Stringer
	waitingSince     mono.Time
	notified         bool
	unwinding        bool
	readySince       mono.Time // when it became runnable
	yielded          bool      // it became runnable by Yield
	paused           bool
	wokenWhilePaused bool
	err              error
}

// endedGoroutine marks a program that has ended: its goroutine's address may be reused.
const endedGoroutine = ^uintptr(0)

// unwindError is the panic value that unwinds a parked program that is killed, or whose world ends.
type unwindError struct{}

// Error is printed if the panic is in a goroutine that the program started: nothing recovers it.
func (unwindError) Error() string {
	return "a program of a simulated world has ended, and a goroutine that it started still calls into the world: " +
		"call from the program itself (without go)"
}

// Go adds a program. It first runs when the world next chooses among the
// runnable programs. Errors and traces show the name.
//
// When the world ends early, a parked program is unwound by a panic that its
// deferred calls see and must not swallow.
func (w *World) Go(name string, f func(p *Proc) error) *Proc {
	if w.ended {
		panic(fmt.Sprintf("sim: Go(%q) in a world that has ended", name))
	}
	p := &Proc{w: w, name: name, waitReason: (*starting)(nil), waitingSince: w.now}
	p.timer.init(w, (*procTimerHandler)(p), 0)
	p.readySince = w.now
	p.next, p.stop = iter.Pull(func(park func(struct{}) bool) {
		p.park, p.goroutine = park, process.Goroutine()
		defer func() { p.goroutine = endedGoroutine }()
		p.err = p.call(f)
	})
	w.procs = append(w.procs, p)
	w.ready.register(p)
	w.ready.add(p)
	return p
}

// call runs f and turns a panic into an error. A runtime.Goexit (FailNow in a test) propagates to
// the caller of Run.
func (p *Proc) call(f func(*Proc) error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		switch v := recover(); v.(type) {
		case nil, unwindError: // runtime.Goexit, and the end of the world
		default:
			err = &PanicError{Program: p.name, Value: v, Stack: debug.Stack()}
		}
	}()
	err = f(p)
	returned = true
	if err != nil {
		err = &ProgramError{Program: p.name, Err: err}
	}
	return err
}

// panicked reports whether the program has ended with a panic.
func (p *Proc) panicked() bool {
	var panicked *PanicError
	return errors.As(p.err, &panicked)
}

// resume runs p until it parks or ends.
func (w *World) resume(p *Proc) error {
	w.events++
	w.traceRun(p)
	w.current = p
	_, parked := p.next()
	w.current = nil
	if parked {
		return nil
	}
	w.procs = remove(w.procs, p)
	w.ready.unregister(p)
	return p.err
}

// Current returns the running program; nil in a handler or outside Run. A
// library uses it to park its caller without being passed the Proc.
//
// It panics with a *WrongGoroutineError in a goroutine that a program has
// started.
func (w *World) Current() *Proc {
	w.checkGoroutine()
	return w.current
}

// Name returns the program's name.
func (p *Proc) Name() string { return p.name }

// World returns the program's world.
func (p *Proc) World() *World { return p.w }

// Now returns the virtual time since the start of the world.
func (p *Proc) Now() time.Duration { return time.Duration(p.w.now) }

// Sleep parks the program for d. Zero or less is a Yield.
func (p *Proc) Sleep(d time.Duration) {
	if d <= 0 {
		p.Yield()
		return
	}
	p.checkRunning("Sleep")
	w := p.w
	until := w.now.Add(d)
	if w.idleUntil(until) {
		w.events++
		w.now = until
		w.traceRun(p)
		return
	}
	p.timer.Reset(until)
	p.wait((*sleeping)(p))
}

// Compute implements verbs.Proc: the program is busy for d of virtual time.
func (p *Proc) Compute(d time.Duration) { p.Sleep(d) }

// Yield runs everything else that is due now before the program continues.
func (p *Proc) Yield() {
	p.checkRunning("Yield")
	w := p.w
	if w.idleUntil(w.now) {
		w.events++
		w.traceRun(p)
		return
	}
	w.ready.add(p)
	p.readySince, p.yielded = w.now, true
	p.wait((*yielding)(nil))
}

// idleUntil reports whether nothing else would run if the program blocked until t, no limit would
// be reached, and Config.Stop need not be called. Then Sleep and Yield do not switch to another
// coroutine, which is much cheaper. noSleepShortcut, set by a test, disables that.
func (w *World) idleUntil(t mono.Time) bool {
	if w.ready.len() > 0 || t > w.horizon || t > w.cfg.MaxTime || w.events >= w.nextCheck || w.noSleepShortcut {
		return false
	}
	at, ok := w.queue.peek()
	return !ok || at > t
}

// wait parks until the program is put on the ready list. It panics if the program is ended first.
func (p *Proc) wait(reason fmt.Stringer) {
	p.waitReason, p.waitingSince = reason, p.w.now
	if resumed := p.park(struct{}{}); !resumed {
		p.unwinding = true
		panic(unwindError{})
	}
	p.waitReason = nil
}

// checkRunning panics unless the program is the running one and the caller is in its goroutine. In
// a deferred call of a program that is being ended, it panics with unwindError again.
func (p *Proc) checkRunning(call string) {
	if self := process.Goroutine(); self != p.goroutine {
		p.w.checkGoroutine()
		// While Run runs, checkGoroutine has checked the caller. After it, the caller is a
		// goroutine that has outlived the program (which has run: goroutine is not 0).
		if !p.w.running && p.goroutine != 0 {
			panic(newWrongGoroutineError(string(debug.Stack())))
		}
	}
	if p.unwinding {
		panic(unwindError{})
	}
	if p.w.current != p {
		panic(fmt.Sprintf("sim: %s of program %q called from outside it: only the running program can park itself", call, p.name))
	}
}

// procTimerHandler is a Proc as the handler of its timer.
type procTimerHandler Proc

// HandleEvent implements Handler: it wakes the program when its sleep ends or its wait times out.
func (h *procTimerHandler) HandleEvent(mono.Time, uint64) {
	p := (*Proc)(h)
	p.stopWaiting()
	p.wake()
}

// stopWaiting removes the program from the waiters of its signal, if it waits for one.
func (p *Proc) stopWaiting() {
	if p.signal != nil {
		p.signal.waiters = remove(p.signal.waiters, p)
		p.signal = nil
	}
}

// remove removes the first element that equals v, if there is one.
func remove[T comparable](s []T, v T) []T {
	if i := slices.Index(s, v); i >= 0 {
		return slices.Delete(s, i, i+1)
	}
	return s
}

// Wait reasons of programs that are not in Wait.
type (
	starting struct{}
	yielding struct{}
	sleeping Proc
)

func (*starting) String() string   { return "its first turn" }
func (*yielding) String() string   { return "its turn" }
func (s *sleeping) String() string { return "the end of its sleep at " + s.timer.due.String() }
