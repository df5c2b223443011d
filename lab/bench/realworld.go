package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// realWorld is the conformance.Runtime of a case in real time. Its tasks are
// goroutines, which need locks for shared data.
type realWorld struct {
	epoch time.Time
	ctx   context.Context // cancelled by stop when the case must end
	stop  func()
	crash chan error // of a task

	bodyDone <-chan error // set if the body of the case has not ended

	mu    sync.Mutex
	tasks []*realTask
	waits []*string
}

// newRealWorld returns the runtime of a case that begins now.
func newRealWorld() *realWorld {
	w := &realWorld{epoch: time.Now(), crash: make(chan error, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// caseStopped is the panic value that unwinds a case after stop.
type caseStopped struct{}

var errCaseStopped = errors.New("the case was stopped")

// goCase calls f, the body of a case or of a task, in a goroutine, and returns a channel that
// receives its error. A panic and runtime.Goexit are converted into errors.
func goCase(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the case called runtime.Goexit, as t.FailNow does: return an error instead")
		defer func() {
			switch v := recover().(type) {
			case nil:
			case caseStopped:
				err = errCaseStopped
			default:
				err = newCrashError(v, debug.Stack())
			}
			done <- err
		}()
		err = f()
	}()
	return done
}

// stopped reports whether the case must end.
func (w *realWorld) stopped() bool { return w.ctx.Err() != nil }

// startWait records that a goroutine of the case waits for something, until done is
// called. Both panic with caseStopped after stop.
func (w *realWorld) startWait(what string) (done func()) {
	if w.stopped() {
		panic(caseStopped{})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = append(w.waits, &what) // the address identifies this wait among others for the same
	return func() {
		w.mu.Lock()
		i := slices.Index(w.waits, &what)
		w.waits = slices.Delete(w.waits, i, i+1)
		w.mu.Unlock()
		if w.stopped() {
			panic(caseStopped{})
		}
	}
}

// describeWaits lists what the case and its tasks wait for, except for waits inside the device.
func (w *realWorld) describeWaits() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, what := range w.waits {
		all = append(all, *what)
	}
	for _, t := range w.tasks {
		if !t.hasEnded() {
			all = append(all, fmt.Sprintf("task %s has not ended", t.name))
		}
	}
	if len(all) == 0 {
		return "it waits in the device, or computes"
	}
	return "it waits for " + strings.Join(all, ", ")
}

// maxCaseIntervals is the maximum duration of a case, as a multiple of the watchdog's interval.
const maxCaseIntervals = 10

// watchdog ends cases that hang: on a device of another host, after an interval without a reply of
// the agent, or at a deadline; elsewhere, after the interval.
type watchdog struct {
	interval    time.Duration
	end         time.Duration // deadline of a case with replies
	replies     func() uint64 // counts the agent's replies; nil elsewhere
	lastReplies uint64        // at the last call of hung
}

// hung reports at the end of an interval whether the case hangs. With an agent, the case hangs only
// if the agent sent no reply in the interval, or the deadline of the case has passed.
func (w *watchdog) hung(now time.Duration) bool {
	if w.replies == nil {
		return true // the interval is the time limit
	}
	before := w.lastReplies
	w.lastReplies = w.replies()
	return w.lastReplies == before || now >= w.end
}

// runBody runs the body of a case, and returns when the body returns, a task crashes, wd finds that
// the case hangs, ctx is done, or the agent is lost (lost, which may be nil, is closed).
func (w *realWorld) runBody(ctx context.Context, body func() error, wd *watchdog, lost <-chan struct{}) error {
	tick := time.NewTicker(wd.interval)
	defer tick.Stop()
	w.bodyDone = goCase(body)
	for {
		select {
		case err := <-w.bodyDone:
			w.bodyDone = nil
			return cmp.Or(err, w.unfinishedTasks())
		case err := <-w.crash:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-lost:
			return agent.ErrLost
		case <-tick.C:
			if wd.hung(w.Now()) {
				return &conformance.HangError{Waiting: fmt.Sprintf("%v have passed, and %s", w.Now().Round(wd.interval), w.describeWaits())}
			}
		}
	}
}

// awaitEnd waits until the body and the tasks of a stopped case have ended: their next call that
// waits panics. It reports whether all ended before ctx was done.
func (w *realWorld) awaitEnd(ctx context.Context) bool {
	all := true
	if w.bodyDone != nil {
		select {
		case <-w.bodyDone:
		case <-ctx.Done():
			all = false
		}
	}
	w.mu.Lock()
	tasks := w.tasks
	w.mu.Unlock()
	for _, t := range tasks {
		select {
		case <-t.ended:
		case <-ctx.Done():
			all = false
		}
	}
	return all
}

// closeDevices closes the devices of a case; nil ones did not open.
func closeDevices(devices []verbs.Context) error {
	var errs []error
	for _, d := range devices {
		if d == nil {
			continue
		}
		if err := d.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			errs = append(errs, fmt.Errorf("close %s: %w", d.Info().Name, err))
		}
	}
	return errors.Join(errs...)
}

// Now implements verbs.Proc.
func (w *realWorld) Now() time.Duration { return time.Since(w.epoch) }

// Sleep implements verbs.Proc. startWait records the wait until its result is called.
func (w *realWorld) Sleep(d time.Duration) {
	defer w.startWait("the end of its sleep")()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ctx.Done():
	}
}

// spinTime is how long Compute spins at the end, to cover late timers.
const spinTime = 100 * time.Microsecond

// Compute implements verbs.Proc. It spins for the last spinTime, since a sleep may end late.
func (w *realWorld) Compute(d time.Duration) {
	began := time.Now()
	if d > spinTime {
		w.Sleep(d - spinTime)
	}
	for time.Since(began) < d {
	}
}

// Go implements conformance.Runtime: it runs f in a goroutine. If f panics, the first such crash is
// reported to the goroutine of the case through w.crash.
func (w *realWorld) Go(name string, f func() error) conformance.Task {
	t := &realTask{w: w, name: name, ended: make(chan struct{})}
	done := goCase(f)
	go func() {
		t.err = <-done
		close(t.ended)
		if _, crashed := errors.AsType[*crashError](t.err); crashed {
			select {
			case w.crash <- t.err:
			default: // keep the first
			}
		}
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks = append(w.tasks, t)
	return t
}

// unfinishedTasks returns errors of tasks that still run after the case, or failed without a Wait.
func (w *realWorld) unfinishedTasks() error {
	w.mu.Lock()
	tasks := w.tasks
	w.mu.Unlock()
	var errs []error
	for _, t := range tasks {
		switch {
		case !t.hasEnded():
			errs = append(errs, fmt.Errorf("task %q still runs after the case: wait for it", t.name))
		case !t.waited.Load() && t.err != nil:
			errs = append(errs, fmt.Errorf("task %q, without Wait: %w", t.name, t.err))
		}
	}
	return errors.Join(errs...)
}

// realTask is a goroutine of a case.
type realTask struct {
	w      *realWorld
	name   string
	ended  chan struct{}
	err    error // valid when ended is closed
	waited atomic.Bool
}

// hasEnded reports whether the function of the task has returned.
func (t *realTask) hasEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// Wait implements conformance.Task: it returns the error of the task, ErrTimeout, or errCaseStopped
// if the case is stopped first.
func (t *realTask) Wait(timeout time.Duration) error {
	if !t.hasEnded() {
		defer t.w.startWait("the end of task " + t.name)()
	}
	var out <-chan time.Time
	if timeout >= 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		out = timer.C
	}
	select {
	case <-t.ended:
	case <-out:
		if !t.hasEnded() { // prefer the end if both are ready
			return fmt.Errorf("task %s: %w", t.name, verbs.ErrTimeout)
		}
	case <-t.w.ctx.Done():
		if !t.hasEnded() {
			return errCaseStopped
		}
	}
	t.waited.Store(true)
	return t.err
}

// crashError is the error of a panic.
type crashError struct {
	value     any
	stack     []byte
	violation error // set if the device panicked
}

// newCrashError returns the error of a panic. It is a violation if the stack shows that an emulated
// device panicked. The simulator, package emu/sim, is no device: it panics on misuse.
func newCrashError(value any, stack []byte) error {
	c := &crashError{value: value, stack: stack}
	f := panickingFunction(stack)
	if name, ok := strings.CutPrefix(f, module+"emu/"); ok && !strings.HasPrefix(name, "sim.") {
		c.violation = conformance.Violatedf("a device that survives", "it crashed: %v, in %s", value, f)
	}
	return c
}

// Error returns the violation that the goroutine reported by its panic, or else the panic with its
// stack.
func (c *crashError) Error() string {
	if c.violation != nil {
		return c.violation.Error()
	}
	return fmt.Sprintf("panic: %v\n\n%s", c.value, c.stack)
}

func (c *crashError) Unwrap() error { return c.violation }

// module is the path prefix of the functions of this module.
const module = "github.com/fabrictest/fabrictest/"

// panickingFunction returns the function of this module that panicked first; empty if none did.
func panickingFunction(stack []byte) string {
	// Of nested panics, the last in the text was the first. Its function follows.
	if i := bytes.LastIndex(stack, []byte("\npanic(")); i >= 0 {
		stack = stack[i+1:]
	}
	for line := range strings.Lines(string(stack)) {
		if strings.HasPrefix(line, module) {
			return strings.TrimSpace(line[:strings.LastIndexByte(line, '(')])
		}
	}
	return ""
}
