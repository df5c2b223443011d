package sim

import (
	"fmt"
	"slices"
)

// What others may do to a program: end it, or hold it up. A handler, or another
// program, calls these.

// Kill ends the program where it is parked. Its deferred calls run, as they do
// when the world ends; nothing it does in them can wait. A program that has ended
// is left alone. The error is a panic of a deferred call's.
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

// Pause lets the program not run until Resume, as a stopped process does not:
// what wakes it meanwhile does so then. Time goes on.
func (p *Proc) Pause() {
	if p.w.current == p {
		panic(fmt.Sprintf("sim: program %q pauses itself: park it (Wait, Sleep) instead", p.name))
	}
	p.paused = true
	if i := slices.Index(p.w.ready, p); i >= 0 {
		p.w.ready = slices.Delete(p.w.ready, i, i+1)
		p.woken = true
	}
}

// Resume undoes Pause.
func (p *Proc) Resume() {
	p.paused = false
	if p.woken {
		p.woken = false
		p.w.ready = append(p.w.ready, p)
	}
}

// wake puts p among the programs that can run.
func (p *Proc) wake() {
	if p.paused {
		p.woken = true
		return
	}
	p.w.ready = append(p.w.ready, p)
}
