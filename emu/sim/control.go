package sim

import (
	"fmt"
	"slices"
)

// Calls of handlers and other programs that kill, pause and resume a program.

// Kill ends a parked program. Its deferred calls run but cannot block. It has
// no effect on a program that has ended. The error is a panic of a deferred
// call.
func (p *Proc) Kill() error {
	w := p.w
	i := slices.Index(w.procs, p)
	switch {
	case w.current == p:
		panic(fmt.Sprintf("sim: program %q kills itself: let it return instead", p.name))
	case i < 0:
		return nil
	}
	w.procs = slices.Delete(w.procs, i, i+1)
	if i := slices.Index(w.ready, p); i >= 0 {
		w.ready = slices.Delete(w.ready, i, i+1)
	}
	if p.signal != nil {
		p.signal.remove(p)
		p.signal = nil
	}
	p.timer.Stop()
	w.Tracef("kill %s", p.name)
	killer := w.current
	w.current, p.unwinding = p, true
	p.stop()
	w.current = killer
	if p.panicked() {
		return p.err
	}
	return nil
}

// Pause stops the program until Resume, as SIGSTOP does. A wakeup in between
// takes effect at Resume. Time continues.
func (p *Proc) Pause() {
	if p.w.current == p {
		panic(fmt.Sprintf("sim: program %q pauses itself: park it (Wait, Sleep) instead", p.name))
	}
	p.paused = true
	if i := slices.Index(p.w.ready, p); i >= 0 {
		p.w.ready = slices.Delete(p.w.ready, i, i+1)
		p.wokenWhilePaused = true
	}
}

// Resume undoes Pause.
func (p *Proc) Resume() {
	p.paused = false
	if p.wokenWhilePaused {
		p.wokenWhilePaused = false
		p.w.ready = append(p.w.ready, p)
	}
}

// wake makes p runnable.
func (p *Proc) wake() {
	if p.paused {
		p.wokenWhilePaused = true
		return
	}
	p.w.ready = append(p.w.ready, p)
}
