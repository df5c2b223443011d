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
	err    error // valid when ended is closed
	waited atomic.Bool
}

func (t *realTask) hasEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// Wait implements conformance.Task.
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
	case <-t.w.stop:
		if !t.hasEnded() {
			return errCaseStopped
		}
	}
	t.waited.Store(true)
	return t.err
}

// isCrash reports whether an error is a panic.
func isCrash(err error) bool {
	var c *crashError
	return errors.As(err, &c)
}
