package bench

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// realWorld is a case in real time. Its tasks are goroutines, which run beside each
// other: unlike those of a simulated world they need locks for what they share.
type realWorld struct {
	epoch time.Time
	end   chan struct{} // closed when the case is to end, whatever it does
	crash chan error    // of a task

	mu    sync.Mutex
	tasks []*realTask
	waits []*string
}

func newRealWorld() *realWorld {
	return &realWorld{epoch: time.Now(), end: make(chan struct{}), crash: make(chan error, 1)}
}

// endOfWorld is the panic that takes a case off its stack when its world ends before it.
type endOfWorld struct{}

var errEndOfWorld = errors.New("the world has ended")

// guard calls f and turns a panic into an error.
func guard(f func() error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		switch v := recover().(type) {
		case nil:
			err = errors.New("the case has left by runtime.Goexit, as a test's FailNow does: return an error instead")
		case endOfWorld:
			err = errEndOfWorld
		default:
			err = crashed(v, debug.Stack())
		}
	}()
	err = f()
	returned = true
	return err
}

// start runs f in a goroutine and returns where its error will be.
func start(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errEndOfWorld
		defer func() { done <- err }()
		err = guard(f)
	}()
	return done
}

// over reports whether the world has ended.
func (w *realWorld) over() bool {
	select {
	case <-w.end:
		return true
	default:
		return false
	}
}

// waiting notes that somebody waits for something, until the function that it
// returns is called. A case that waits while its world has ended goes no further.
func (w *realWorld) waiting(what string) (done func()) {
	if w.over() {
		panic(endOfWorld{})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = append(w.waits, &what)
	return func() {
		w.mu.Lock()
		i := slices.Index(w.waits, &what)
		w.waits = slices.Delete(w.waits, i, i+1)
		w.mu.Unlock()
		if w.over() {
			panic(endOfWorld{})
		}
	}
}

// waitsFor tells what the case and its tasks wait for. What they do in the device
// is not known.
func (w *realWorld) waitsFor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, what := range w.waits {
		all = append(all, *what)
	}
	for _, t := range w.tasks {
		if !t.over() {
			all = append(all, fmt.Sprintf("task %s has not ended", t.name))
		}
	}
	if len(all) == 0 {
		return "it waits for the device, or computes"
	}
	return "it waits for " + strings.Join(all, ", ")
}

// Now implements verbs.Proc.
func (w *realWorld) Now() time.Duration { return time.Since(w.epoch) }

// Sleep implements verbs.Proc.
func (w *realWorld) Sleep(d time.Duration) {
	defer w.waiting("the end of its sleep")()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.end:
	}
}

// awake is how much of a computation is spent on the processor: what a timer may be
// late by.
const awake = 100 * time.Microsecond

// Compute implements verbs.Proc.
func (w *realWorld) Compute(d time.Duration) {
	began := time.Now()
	if d > awake {
		w.Sleep(d - awake)
	}
	for time.Since(began) < d {
	}
}

// Go implements conformance.World.
func (w *realWorld) Go(name string, f func() error) conformance.Task {
	t := &realTask{w: w, name: name, ended: make(chan struct{})}
	done := start(f)
	go func() {
		t.err = <-done
		close(t.ended)
		if isCrash(t.err) {
			select {
			case w.crash <- t.err:
			default: // another was first
			}
		}
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks = append(w.tasks, t)
	return t
}

// leftTasks says what is wrong about the tasks of a case that has ended.
func (w *realWorld) leftTasks() error {
	w.mu.Lock()
	tasks := w.tasks
	w.mu.Unlock()
	var errs []error
	for _, t := range tasks {
		switch {
		case !t.over():
			errs = append(errs, fmt.Errorf("the case has ended, and its task %q has not: wait for it", t.name))
		case !t.waited.Load() && t.err != nil:
			errs = append(errs, fmt.Errorf("task %q, which nobody waited for: %w", t.name, t.err))
		}
	}
	return errors.Join(errs...)
}
