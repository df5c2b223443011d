package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// simWorld is the conformance.Runtime of a simulated case.
type simWorld struct {
	*sim.World
	tasks []*simTask
}

// currentProc returns the calling program.
func (w *simWorld) currentProc(call string) *sim.Proc {
	p := w.Current()
	if p == nil {
		panic(call + " outside of the case and its tasks: start what blocks with Bench.Go")
	}
	return p
}

// Now implements verbs.Proc.
func (w *simWorld) Now() time.Duration { return time.Duration(w.World.Now()) }

// Sleep implements verbs.Proc.
func (w *simWorld) Sleep(d time.Duration) { w.currentProc("Sleep").Sleep(d) }

// Compute implements verbs.Proc.
func (w *simWorld) Compute(d time.Duration) { w.currentProc("Compute").Compute(d) }

// Go implements conformance.Runtime.
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

// endTasks ends the tasks of a case that has ended, and returns their errors.
func (w *simWorld) endTasks() error {
	var errs []error
	for _, t := range w.tasks {
		switch {
		case !t.ended:
			errs = append(errs, fmt.Errorf("task %q still runs after the case: wait for it", t.name), t.proc.Kill())
		case !t.waited && t.err != nil:
			errs = append(errs, fmt.Errorf("task %q, without Wait: %w", t.name, t.err))
		}
	}
	return errors.Join(errs...)
}

// simTask is a task of a simulated case.
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
	p := t.w.currentProc("Wait")
	if !t.ended && !p.Wait(&t.end, sim.WaitReason("the end of task "+t.name), timeout) {
		return fmt.Errorf("task %s: %w", t.name, verbs.ErrTimeout)
	}
	t.waited = true
	return t.err
}

// pollTime is the virtual time of a poll without a result, so that a polling loop
// advances time.
const pollTime = 50 * time.Nanosecond

// waitUntil waits until done returns true; false after a timeout. The signal
// changed makes it check again.
func (w *simWorld) waitUntil(changed *sim.Signal, reason sim.WaitReason, timeout time.Duration, done func() bool) bool {
	p := w.currentProc(string(reason))
	deadline := w.Now() + max(timeout, pollTime)
	for !done() {
		left := deadline - w.Now()
		if timeout < 0 {
			left = verbs.Forever
		} else if left <= 0 {
			return false
		}
		p.Wait(changed, reason, left)
	}
	return true
}
