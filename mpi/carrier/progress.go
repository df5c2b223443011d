package carrier

import (
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Progress handles received packets and completions, and sends what is queued. It reports
// whether there was anything to do.
func (c *Carrier) Progress() (moved bool) {
	if !c.enter() {
		return false
	}
	defer c.exit()
	if c.notified.Swap(false) {
		c.rails[0].Disarmed()
	}
	moved = c.pollOnce()
	if !moved {
		armed := false
		for _, r := range c.rails {
			armed = r.arm() || armed
		}
		if armed { // completions before the notification was armed raise no event
			moved = c.pollOnce()
		}
	}
	c.noteStall()
	if moved || c.activity {
		c.activity = false
		c.lastActivity.Store(int64(c.Now()))
	} else {
		c.checkSilentPeers()
	}
	at := c.nextKeepalive()
	if t, ok := c.nextTimer(); ok {
		at = min(at, t)
	}
	c.nextDeadline.Store(int64(at))
	return moved
}

// PollFast is a cheaper Progress for busy polling, which leaves some work to the next
// Progress. Only the first of several consecutive calls reads the clock. The caller must
// not Wait after it.
func (c *Carrier) PollFast(first bool) (moved bool) {
	read := c.cachedNow
	if !c.enter() {
		return false
	}
	defer c.exit()
	if c.cachedNow = read; first {
		c.cachedNow = c.env.Proc.Now()
	}
	if moved = c.pollAll(); !moved {
		return false
	}
	c.activity = true // the next Progress records the time
	if len(c.busyPeers.peers)+len(c.loopback)+len(c.timedPeers.peers) > 0 || slices.ContainsFunc(c.rails, (*rail).needsReceives) {
		c.runDeferredWork()
	}
	return true
}

// enter starts a Progress. It returns false in nested calls.
func (c *Carrier) enter() bool {
	if c.inProgress {
		return false
	}
	c.Flush()
	c.progressCalls++
	c.cachedNow, c.inProgress = 0, true
	return true
}

func (c *Carrier) exit() { c.inProgress = false }

func (c *Carrier) pollOnce() (moved bool) {
	moved = c.pollAll()
	return c.runDeferredWork() || moved
}

// pollAll polls completion queues, rings and shared memory.
func (c *Carrier) pollAll() (moved bool) {
	for _, r := range c.rails {
		moved = r.poll() || moved
	}
	for _, ring := range c.rings {
		moved = ring.poll() || moved
	}
	for _, n := range c.shmPeers {
		moved = n.poll() || moved
	}
	return moved
}

// runDeferredWork does everything but polling: callbacks, timers, queues, closing and
// posting.
func (c *Carrier) runDeferredWork() (moved bool) {
	moved = c.deliverLoopback()
	moved = c.runCallbacks() || moved
	c.runTimers()
	c.disconnectIdle()
	moved = c.pump() || moved
	c.closeEndedConns()
	if err := c.mem.DeregisterRetired(c.Now()); err != nil {
		c.failAll(err)
	}
	for _, r := range c.rails {
		r.repost()
	}
	return moved
}

// deliverLoopback delivers messages of this rank to itself.
func (c *Carrier) deliverLoopback() bool {
	if len(c.loopback) == 0 {
		return false
	}
	messages := c.loopback
	c.loopback = nil
	for i := range messages {
		if err := c.up.Arrived(c.env.Rank, &messages[i].header, messages[i].data); err != nil {
			c.failAll(err)
		}
	}
	return true
}

// AllDelivered reports whether the peers have received everything.
func (c *Carrier) AllDelivered() bool {
	if len(c.loopback) > 0 || len(c.busyPeers.peers) > 0 || len(c.coalescingPeers) > 0 {
		return false
	}
	for _, p := range c.peers {
		if p == nil || p.lost != nil {
			continue
		}
		if len(p.out.Unacked()) > 0 || p.acks.Expiry() != 0 {
			return false
		}
		for _, k := range p.conns {
			if k != nil && k.Outstanding() > 0 {
				return false
			}
		}
	}
	return true
}

// Rings and callbacks do not wake Wait, therefore it polls them. The interval is (time
// waited)/PollBackoff, with minIdle and maxPollInterval as limits.
const (
	minIdle         = 4 * time.Microsecond
	maxPollInterval = 10 * time.Millisecond
)

// Wait blocks until something may have arrived, or for the given time. Several goroutines
// may wait.
func (c *Carrier) Wait(timeout time.Duration) {
	now := c.env.Proc.Now()
	for start := now; ; now = c.env.Proc.Now() {
		left := timeout - (now - start)
		if timeout < 0 {
			left = time.Hour
		}
		if left <= 0 {
			return
		}
		if at := time.Duration(c.nextDeadline.Load()); at != 0 {
			left = min(left, max(at-now, 0))
		}
		idle := now - time.Duration(c.lastActivity.Load())
		if c.env.Concurrent && idle < c.cfg.Spin {
			runtime.Gosched() // let other goroutines run
			return
		}
		interval := min(max(minIdle, idle)/time.Duration(c.cfg.PollBackoff), maxPollInterval)
		polls := c.pollsWhileWaiting()
		if polls {
			left = min(left, interval)
		}
		if c.blockOnCQ(left, interval) || polls || left == 0 {
			return
		}
	}
}

// pollsWhileWaiting reports whether Wait must poll because not all events wake it.
func (c *Carrier) pollsWhileWaiting() bool { return c.mustPoll.Load() || len(c.rails) > 1 }

// blockOnCQ waits for a completion event. It reports whether there may be one.
func (c *Carrier) blockOnCQ(d, interval time.Duration) bool {
	if !c.blocked.CompareAndSwap(false, true) {
		c.env.Proc.Sleep(min(d, interval)) // another goroutine blocks on the channel
		return true
	}
	defer c.blocked.Store(false)
	err := c.rails[0].Wait(d)
	if err == nil {
		c.notified.Store(true)
		return true
	}
	return !errors.Is(err, verbs.ErrTimeout)
}
