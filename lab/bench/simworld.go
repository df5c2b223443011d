package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// simWorld is a simulated world as a case lives in it.
type simWorld struct {
	*sim.World
	tasks []*simTask
}

// me is the program that calls.
func (w *simWorld) me(call string) *sim.Proc {
	p := w.Current()
	if p == nil {
		panic(call + " outside of the case and its tasks: start what blocks with Bench.Go")
	}
	return p
}

// Now implements verbs.Proc.
func (w *simWorld) Now() time.Duration { return time.Duration(w.World.Now()) }

// Sleep implements verbs.Proc.
func (w *simWorld) Sleep(d time.Duration) { w.me("Sleep").Sleep(d) }

// Compute implements verbs.Proc.
func (w *simWorld) Compute(d time.Duration) { w.me("Compute").Compute(d) }

// Go implements conformance.World.
func (w *simWorld) Go(name string, f func() error) conformance.Task {
	t := &simTask{w: w, name: name}
	t.proc = w.World.Go("task "+name, func(*sim.Proc) error {
		t.err = f()
		t.ended = true
		t.end.Broadcast()
		return nil
	})
	w.tasks = append(w.tasks, t)
	return t
}

// endTasks ends the tasks of a case that has ended, and says what is wrong about
// them.
func (w *simWorld) endTasks() error {
	var errs []error
	for _, t := range w.tasks {
		switch {
		case !t.ended:
			errs = append(errs, fmt.Errorf("the case has ended, and its task %q has not: wait for it", t.name), t.proc.Kill())
		case !t.waited && t.err != nil:
			errs = append(errs, fmt.Errorf("task %q, which nobody waited for: %w", t.name, t.err))
		}
	}
	return errors.Join(errs...)
}

// simTask is a program of the world.
type simTask struct {
	w             *simWorld
	name          string
	proc          *sim.Proc
	end           sim.Signal
	ended, waited bool
	err           error
}

// Wait implements conformance.Task.
func (t *simTask) Wait(timeout time.Duration) error {
	p := t.w.me("Wait")
	if !t.ended && !p.Wait(&t.end, sim.WaitReason("the end of task "+t.name), timeout) {
		return fmt.Errorf("task %s: %w", t.name, verbs.ErrTimeout)
	}
	t.waited = true
	return t.err
}

// pollTime is what it takes to look for something that is not there: who does
// nothing but look lets time pass, too.
const pollTime = 50 * time.Nanosecond

// await calls look until it reports that it has found something, or a timeout has
// passed. changed is notified when it is worth another look.
func (w *simWorld) await(changed *sim.Signal, what sim.WaitReason, timeout time.Duration, look func() bool) bool {
	p := w.me(string(what))
	deadline := w.Now() + max(timeout, pollTime)
	for !look() {
		left := deadline - w.Now()
		if timeout < 0 {
			left = verbs.Forever
		} else if left <= 0 {
			return false
		}
		p.Wait(changed, what, left)
	}
	return true
}
