package drive

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// NewCond implements Driver.
func (r *Real) NewCond(fmt.Stringer) Cond { return &realCond{r: r} }

type realCond struct {
	r         *Real
	notified  uint64        // calls of Notify so far
	polling   bool          // a waiter sleeps on the network, holding the poller
	broadcast chan struct{} // closed by Notify; nil if no goroutine waits on it
}

// Notify implements Cond.
func (c *realCond) Notify() {
	c.notified++
	if c.polling {
		c.r.net.wake() // another goroutine has received the packet that would wake it
	}
	if c.broadcast != nil {
		close(c.broadcast)
		c.broadcast = nil
	}
}

// Wait implements Cond. It blocks in the poll of the socket if it gets the poller, and
// otherwise until the goroutine that holds the poller wakes it.
func (c *realCond) Wait(timeout time.Duration) bool {
	r := c.r
	until := mono.Never
	if timeout >= 0 {
		until = r.Now().Add(timeout)
	}
	// A waiter keeps the poller until it returns. To release it after each sleep
	// would pass it from waiter to waiter.
	holding := false
	defer func() {
		if holding {
			r.poller.release()
		}
	}()
	for before := c.notified; c.notified == before; {
		now := r.Now()
		r.poller.lastPoll = now
		if r.acks.pending {
			r.PollEmpty() // sends delayed acknowledgements: the application blocks here, and will not answer
			continue
		}
		if r.full && r.retryAt <= now {
			if r.PollEmpty(); c.notified != before {
				return true
			}
		}
		if now >= until || r.closed {
			return false
		}
		if !holding && !r.poller.tryAcquire() {
			holding = c.waitForPoller(until.Sub(now))
			continue
		}
		holding = true
		c.polling = true
		r.sleep(min(r.sleepTime(now), until.Sub(now)))
		c.polling = false
		r.Progress()
		if c.notified != before {
			r.PollFound()
		}
		if r.engine.Deadline() <= r.poller.lastPoll {
			// Packets that timers cause may be sent together with the application's answer, too.
			r.engine.Tick(r.poller.lastPoll)
			r.acks.pending = true
		}
	}
	return true
}

// waitForPoller waits until Notify, until d has passed or until the poller is
// free. In the last case it acquires the poller and reports true.
func (c *realCond) waitForPoller(d time.Duration) (acquired bool) {
	r := c.r
	if r.poller.background {
		r.net.wake() // the background goroutine gives way to an application
	}
	if c.broadcast == nil {
		c.broadcast = make(chan struct{})
	}
	broadcast := c.broadcast
	r.mu.Unlock()
	t := time.NewTimer(d)
	select {
	case <-broadcast:
	case <-r.poller.token:
		acquired = true
	case <-t.C:
	case <-r.done:
	}
	t.Stop()
	r.lock()
	return acquired
}
