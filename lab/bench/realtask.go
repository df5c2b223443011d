package bench

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// realTask is a goroutine of a case.
type realTask struct {
	w      *realWorld
	name   string
	ended  chan struct{}
	err    error // when it has ended
	waited atomic.Bool
}

func (t *realTask) over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// Wait implements conformance.Task.
func (t *realTask) Wait(timeout time.Duration) error {
	if !t.over() {
		defer t.w.waiting("the end of task " + t.name)()
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
		if !t.over() { // of both at once, its end counts
			return fmt.Errorf("task %s: %w", t.name, verbs.ErrTimeout)
		}
	case <-t.w.end:
		if !t.over() {
			return errEndOfWorld
		}
	}
	t.waited.Store(true)
	return t.err
}

// isCrash reports whether an error is what guard made of a panic.
func isCrash(err error) bool {
	var c *crashError
	return errors.As(err, &c)
}
