package drive

import (
	"crypto/rand"
	"fmt"
	"runtime"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// baseEngine is the part that Engine and StreamEngine have in common.
type baseEngine interface {
	Settle(now mono.Time)
	Tick(now mono.Time)
	Deadline() mono.Time
}

// network connects an engine to its link or streams. All methods but wait and
// wake are called under the driver's lock.
type network interface {
	// receive passes up to a batch of received data to the engine. It reports
	// whether there was any, and whether there may be more.
	receive(now mono.Time) (received, more bool)
	// wakeNextWait is called when the driver stops although there may be more to
	// receive: the next wait must not block then.
	wakeNextWait()
	// flush sends up to a batch of the engine's output and reports whether there
	// may be more. If the network is full, retryAfter is when to call flush again;
	// it is negative if all was sent, or if wait returns when there is room.
	flush(now mono.Time) (more bool, retryAfter time.Duration)
	// wait blocks until there is input, d has passed or wake is called. It may return early.
	wait(d time.Duration) error
	wake()
}

// fullRetry is the time after which flush tries a full link again.
const fullRetry = 20 * time.Microsecond

// packetNetwork is the network of an Engine: a packet link.
type packetNetwork struct {
	engine Engine
	link   link.Waiter
	in     []link.Datagram
	out    SendQueue
}

// newPacketNetwork returns the network of an engine on a packet link.
func newPacketNetwork(e Engine, l link.Waiter) *packetNetwork {
	return &packetNetwork{engine: e, link: l, in: make([]link.Datagram, BatchSize), out: newQueueFor(e, l)}
}

// receive implements network: it passes a batch of datagrams to the engine.
func (n *packetNetwork) receive(now mono.Time) (received, more bool) {
	k, err := n.link.Recv(now, n.in)
	for i := range k {
		n.engine.Input(now, &n.in[i])
	}
	runtime.KeepAlive(n.link) // which may have the memory of the payloads
	return k > 0, err == nil && k == len(n.in)
}

func (n *packetNetwork) wakeNextWait() {} // WaitReadable returns while datagrams wait

// flush implements network. If the link is full, the driver retries after fullRetry, because links
// do not report when they have room.
func (n *packetNetwork) flush(now mono.Time) (more bool, retryAfter time.Duration) {
	more, full := n.out.Flush(now, n.engine, n.link)
	if full {
		return false, fullRetry
	}
	return more, -1 // no retry
}

func (n *packetNetwork) wait(d time.Duration) error { return n.link.WaitReadable(d) }
func (n *packetNetwork) wake()                      { n.link.Wake() }

// NewCond implements Driver.
func (r *Real) NewCond(fmt.Stringer) Cond { return &realCond{r: r} }

type realCond struct {
	r         *Real
	notified  uint64        // calls of Notify so far
	polling   bool          // a waiter sleeps on the network, holding the poller
	broadcast chan struct{} // closed by Notify; nil if no goroutine waits on it
}

// Notify implements Cond. It wakes the waiter that holds the poller (the right to block on the
// network), and the others.
func (c *realCond) Notify() {
	c.notified++
	if c.polling {
		c.r.net.wake() // another goroutine has received the packet that would have woken the waiter
	}
	if c.broadcast != nil {
		close(c.broadcast)
		c.broadcast = nil
	}
}

// Wait implements Cond. If it acquires the poller (the right to block on the network), it blocks
// there and processes the packets that arrive; else it blocks until Notify. It returns false after
// the timeout (none if negative) or Close.
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
		if r.full && r.retryAt <= now { // the network was full: send the remaining packets
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
			// Packets of expired timers wait like acknowledgements: for the application's answer, or
			// for PollEmpty if this loop continues.
			r.engine.Tick(r.poller.lastPoll)
			r.acks.pending = true
		}
	}
	return true
}

// waitForPoller releases the device's lock and waits until Notify, until d has passed, until Close
// or until the poller is free. In the last case it acquires the poller and reports true. It wakes a
// background goroutine that holds the poller. At the end it takes the lock again.
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

// NewSecret returns a random secret, from which a device derives its memory keys.
func NewSecret() (s [16]byte) {
	rand.Read(s[:]) // never fails
	return s
}
