package carrier

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// waiter lets goroutines of the rank block until there is something to do. Its atomic fields
// are those that Wait shares with Progress.
type waiter struct {
	env          *transport.Env
	mustPoll     atomic.Bool  // rings or callbacks exist, which do not wake Wait
	lastActivity atomic.Int64 // when Progress last did something
	deadline     atomic.Int64 // of timers; 0 if none runs
	blocked      atomic.Bool  // a goroutine waits for a completion event
	notified     atomic.Bool  // there was a completion event
	activity     bool         // PollFast did something since lastActivity
}

// progressed records the time if Progress has done something (moved), or PollFast before it. It
// reports whether one of them has.
func (w *waiter) progressed(moved bool, now func() time.Duration) bool {
	if !moved && !w.activity {
		return false
	}
	w.activity = false
	w.lastActivity.Store(int64(now()))
	return true
}

// Rings and callbacks do not wake Wait, therefore it polls them. The interval is (time
// waited)/PollBackoff, with minIdle and maxPollInterval as limits.
const (
	minIdle         = 4 * time.Microsecond
	maxPollInterval = 10 * time.Millisecond
)

// Wait blocks until Progress may have something to do: after an event, when a timer expires or
// polling is due. It returns at once shortly after activity, and at the latest after timeout,
// unless that is negative. Several goroutines may wait.
func (c *Carrier) Wait(timeout time.Duration) {
	w := &c.waiter
	now := c.env.Proc.Now()
	for start := now; ; now = c.env.Proc.Now() {
		left := timeout - (now - start)
		if timeout < 0 {
			left = time.Hour
		}
		if left <= 0 {
			return
		}
		if at := time.Duration(w.deadline.Load()); at != 0 {
			left = min(left, max(at-now, 0))
		}
		idle := now - time.Duration(w.lastActivity.Load())
		if c.env.Concurrent && idle < c.cfg.Spin {
			runtime.Gosched() // the caller polls again after other goroutines have run
			return
		}
		interval := min(max(minIdle, idle)/time.Duration(c.cfg.PollBackoff), maxPollInterval)
		mustPoll := w.mustPoll.Load() || len(c.rails) > 1 // not all that arrives raises an event
		if mustPoll {
			left = min(left, interval)
		}
		if w.block(c.rails[0], left, interval) || mustPoll || left == 0 {
			return
		}
	}
}

// block waits up to timeout for a completion event of a rail. It returns false after a timeout:
// otherwise the caller must poll. If another goroutine waits already, it sleeps for at most
// pollInterval.
func (w *waiter) block(r *rail, timeout, pollInterval time.Duration) bool {
	if !w.blocked.CompareAndSwap(false, true) {
		w.env.Proc.Sleep(min(timeout, pollInterval))
		return true
	}
	defer w.blocked.Store(false)
	err := r.Wait(timeout)
	if err == nil {
		w.notified.Store(true)
		return true
	}
	return !errors.Is(err, verbs.ErrTimeout)
}
