package sim

import (
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/goroutine"
)

// Proc is a program in the world: a coroutine that runs until it parks in one of
// its own blocking calls. Its methods are for the program itself, except Name.
type Proc struct {
	w    *World
	name string
	// goroutine is the program's own, once it has begun.
	goroutine uintptr

	next func() (struct{}, bool) // runs the program until it parks
	stop func()                  // makes the park it is in unwind
	park func(struct{}) bool

	timer     Timer
	signal    *Signal // waited for, nil if none
	what      fmt.Stringer
	since     mono.Time
	notified  bool
	unwinding bool
	paused    bool
	woken     bool // while paused
	busy      time.Duration
	err       error
}

// noGoroutine is that of a program which has ended: another may have its own by then.
const noGoroutine = ^uintptr(0)

// unwound is the panic that takes a parked program off its stack when the world
// ends before it.
type unwound struct{}

// Error is what is printed if no program is there to be unwound: the panic is in a
// goroutine that one has started.
func (unwound) Error() string {
	return "a program of a simulated world has ended, and a goroutine that it started still calls into the world: " +
		"call from the program itself (without go)"
}

// Go adds a program. It first runs when the world next comes to choose among the
// programs that can. The name is for reports.
//
// When the world ends early, a parked program is unwound by a panic that its
// deferred calls see and that it must not swallow.
func (w *World) Go(name string, f func(p *Proc) error) *Proc {
	if w.ended {
		panic(fmt.Sprintf("sim: Go(%q) in a world that has ended", name))
	}
	p := &Proc{w: w, name: name, what: (*starting)(nil), since: w.now}
	p.timer.init(w, (*wakeUp)(p), 0)
	p.next, p.stop = iter.Pull(func(park func(struct{}) bool) {
		p.park, p.goroutine = park, goroutine.Self()
		defer func() { p.goroutine = noGoroutine }()
		p.err = p.call(f)
	})
	w.procs = append(w.procs, p)
	w.ready = append(w.ready, p)
	return p
}

// call runs f and turns a panic into an error. A runtime.Goexit (a test's
// FailNow) passes through to whoever called Run.
func (p *Proc) call(f func(*Proc) error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		switch v := recover(); v.(type) {
		case nil, unwound:
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
	if i := slices.Index(w.procs, p); i >= 0 {
		w.procs = slices.Delete(w.procs, i, i+1)
	}
	return p.err
}

// Current returns the program that is running, nil if none is (in a handler, or
// outside Run). It lets a library park its caller without being handed the Proc.
//
// It panics with a *WrongGoroutineError in a goroutine that a program has started.
func (w *World) Current() *Proc {
	w.mustOwn()
	return w.current
}

// Name returns the name the program was given.
func (p *Proc) Name() string { return p.name }

// World returns the world that the program runs in.
func (p *Proc) World() *World { return p.w }

// Now returns the time since the world began.
func (p *Proc) Now() time.Duration { return time.Duration(p.w.now) }

// Busy returns how much time the program has spent in Compute.
func (p *Proc) Busy() time.Duration { return p.busy }

// Sleep parks the program for d. Zero or less is a Yield.
func (p *Proc) Sleep(d time.Duration) {
	if d <= 0 {
		p.Yield()
		return
	}
	p.mustRun("Sleep")
	w := p.w
	until := w.now.Add(d)
	if w.nothingBefore(until) {
		w.events++
		w.now = until
		w.traceRun(p)
		return
	}
	p.timer.Reset(until)
	p.wait((*sleeping)(p))
}

// Compute passes d as Sleep does, and counts it as work of the program's.
func (p *Proc) Compute(d time.Duration) {
	p.busy += max(d, 0)
	p.Sleep(d)
}

// Yield lets everything else that is due now run before the program goes on.
func (p *Proc) Yield() {
	p.mustRun("Yield")
	w := p.w
	if w.nothingBefore(w.now) {
		w.events++
		w.traceRun(p)
		return
	}
	w.ready = append(w.ready, p)
	p.wait((*yielding)(nil))
}

// nothingBefore reports that, were the running program to park until t, it would
// be the very next thing to run. Then parking is for nothing: time may simply
// move on. It is what makes short sleeps cheap.
func (w *World) nothingBefore(t mono.Time) bool {
	if len(w.ready) > 0 || t > w.horizon || t > w.cfg.MaxTime || w.events >= w.cfg.MaxEvents || w.events%stopEvery == 0 || w.slowSleep {
		return false
	}
	next, ok := w.queue.peek()
	return !ok || next.at > t
}

// wait parks until something puts p on the ready list.
func (p *Proc) wait(what fmt.Stringer) {
	p.what, p.since = what, p.w.now
	if !p.park(struct{}{}) {
		p.unwinding = true
		panic(unwound{})
	}
	p.what = nil
}

// mustRun guards the blocking calls: only the program itself may park itself, in its
// own goroutine, and a program being unwound goes on unwinding.
func (p *Proc) mustRun(call string) {
	if self := goroutine.Self(); self != p.goroutine {
		p.w.mustOwn()
		if !p.w.running && p.goroutine != 0 { // it has ended, and the goroutine has not
			panic(foreign(string(debug.Stack())))
		}
	}
	if p.unwinding {
		panic(unwound{})
	}
	if p.w.current != p {
		panic(fmt.Sprintf("sim: %s of program %q called from outside it: only the running program can park itself", call, p.name))
	}
}

// wakeUp is a Proc as the handler of its own timer.
type wakeUp Proc

func (h *wakeUp) HandleEvent(mono.Time, uint64) {
	p := (*Proc)(h)
	if p.signal != nil {
		p.signal.remove(p)
		p.signal = nil
	}
	p.wake()
}

// What a program that is in none of its callers' waits is doing.
type (
	starting struct{}
	yielding struct{}
	sleeping Proc
)

func (*starting) String() string   { return "its first turn" }
func (*yielding) String() string   { return "its turn" }
func (s *sleeping) String() string { return "the end of its sleep at " + s.timer.due.String() }
