package carrier

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// Progress handles received packets and completions, and sends queued packets. If there was nothing
// to do, it arms the completion events for Wait, and looks for silent peers. It reports whether
// there was anything to do.
func (c *Carrier) Progress() (moved bool) {
	if !c.enter() {
		return false
	}
	defer c.clock.exit()
	if c.waiter.notified.Swap(false) {
		c.rails[0].EventReceived()
	}
	moved = c.pollOnce()
	if !moved {
		newlyArmed := false
		for _, r := range c.rails {
			pollAgain, err := r.Arm()
			if err != nil {
				c.failAll(err)
			}
			newlyArmed = newlyArmed || pollAgain
		}
		if newlyArmed { // completions before the notification was armed raise no event
			moved = c.pollOnce()
		}
	}
	alive, now, idle := &c.keepalive, c.Now(), c.cfg.KeepaliveIdle
	if now-alive.lastProgress > 2*idle { // outstanding requests have waited for this rank to call Progress, not for the peer
		alive.stalledUntil = now
	}
	alive.lastProgress = now
	if !c.waiter.progressed(moved, c.clock.now) {
		c.checkSilentPeers()
	}
	at := alive.lastCheck + idle
	if t, ok := c.nextTimer(); ok {
		at = min(at, t)
	}
	c.waiter.deadline.Store(int64(at))
	return moved
}

// HasPacket reports whether a packet of a peer can be seen in a ring or in shared memory. It does not handle
// the packet, which takes longer.
func (c *Carrier) HasPacket(rank int) bool {
	p := c.peers[rank]
	switch {
	case p == nil || p.lost != nil || p.shm == nil && p.ringIn == nil:
		return false
	case p.shm != nil:
		c.env.Charge(verbs.WorkPollMemory, 1, c.costs.PollMemory)
		return p.shm.Peek() != nil
	}
	c.env.Charge(verbs.WorkPollMemory, 1, c.costs.PollMemory)
	return p.ringIn.Peek() != nil
}

// PollFast is a cheaper Progress for busy polling, which leaves some work to the next Progress. It
// reports whether a packet or completion was there. first is set in the first of several consecutive
// calls: only that one reads the clock. The caller must not Wait after PollFast, because it arms no
// completion event.
func (c *Carrier) PollFast(first bool) (moved bool) {
	lastRead := c.clock.cached // enter clears it
	if !c.enter() {
		return false
	}
	defer c.clock.exit()
	c.clock.cached = lastRead
	if first {
		c.clock.cached = c.env.Proc.Now()
	}
	if !c.pollAll() {
		return false
	}
	c.waiter.activity = true // the next Progress records the time
	if len(c.lists.busy.peers)+len(c.loopback)+len(c.lists.timed.peers) > 0 || slices.ContainsFunc(c.rails, (*rail).needsReceives) {
		c.runDeferredWork()
	}
	return true
}

// enter starts a Progress or PollFast by flushing coalesced messages; false in nested calls.
func (c *Carrier) enter() bool {
	if c.clock.inProgress {
		return false
	}
	c.Flush()
	c.clock.progressCalls++
	c.clock.cached, c.clock.inProgress = 0, true
	return true
}

// clock reads the time. In real time Progress reads it once, because reading it takes a good
// part of the time of a short message.
type clock struct {
	env           *transport.Env
	inProgress    bool          // within Progress or PollFast
	progressCalls uint64        // number of calls of either
	cached        time.Duration // time of the current Progress; 0 if not read yet
}

func (k *clock) exit() { k.inProgress = false }

// now returns the time. Within Progress, in real time (Concurrent), it reads the clock once and
// then returns the same.
func (k *clock) now() time.Duration {
	if !k.inProgress || !k.env.Concurrent {
		return k.env.Proc.Now()
	}
	if k.cached == 0 {
		k.cached = k.env.Proc.Now()
	}
	return k.cached
}

// pollOnce polls, and does all other work. It reports whether there was anything to do.
func (c *Carrier) pollOnce() (moved bool) {
	moved = c.pollAll()
	return c.runDeferredWork() || moved
}

// pollAll polls the completion queues of all rails, the rings that peers write by RDMA, and the
// shared memory of ranks on this host, and reports whether it found anything. It charges the CPU
// time of looking at the memory.
func (c *Carrier) pollAll() (moved bool) {
	for _, r := range c.rails {
		polled, err := r.Poll(r.completed)
		if err != nil {
			c.failAll(err)
		}
		moved = moved || polled
	}
	looks := len(c.polled.remote) + len(c.polled.shared)
	c.env.Charge(verbs.WorkPollMemory, looks, c.costs.PollMemory*time.Duration(looks))
	for _, ring := range c.polled.remote {
		moved = ring.poll() || moved
	}
	for _, n := range c.polled.shared {
		moved = n.poll() || moved
	}
	return moved
}

// polledRings are the rings that must be polled.
type polledRings struct {
	remote []*ringIn  // that peers write to with RDMA
	shared []*shmPeer // in shared memory
}

// runDeferredWork does everything but polling: it delivers loopback messages, runs callbacks and
// timers, sends queued packets, closes connections, deregisters memory and posts receives. It
// reports whether it delivered, ran a callback or sent.
func (c *Carrier) runDeferredWork() (moved bool) {
	moved = c.deliverLoopback()
	moved = c.conns.callbacks.run() || moved
	c.runTimers()
	c.runRequestTimers()
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

// deliverLoopback delivers messages of this rank to itself, and reports whether there were any.
func (c *Carrier) deliverLoopback() bool {
	if len(c.loopback) == 0 {
		return false
	}
	messages := c.loopback
	c.loopback = nil
	for i := range messages {
		if err := c.passUp(c.env.Rank, &messages[i].header, messages[i].data); err != nil {
			c.failAll(err)
		}
	}
	return true
}

// AllDelivered reports whether all messages are delivered, and no acknowledgement to a peer is due. If a
// connection has only unsignaled requests, it sends a signaled one after them.
func (c *Carrier) AllDelivered() bool {
	if len(c.loopback) > 0 || len(c.lists.busy.peers) > 0 || len(c.lists.coalescing) > 0 {
		return false
	}
	for p := range c.reachedPeers {
		for k := range p.eachConn {
			if k.Outstanding() > 0 && !k.AwaitsCompletion() && k.state == open {
				c.sendAckOnly(p, k)
			}
		}
		isBusy := func(k *conn) bool { return k.Outstanding() > 0 }
		if len(p.out.unacked) > 0 || p.acks.expiry != 0 || p.findConn(isBusy) != nil {
			return false
		}
	}
	return true
}

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

// progressed reports whether Progress has done something (moved), or PollFast since the last call,
// and then records the time as that of the last activity.
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
			left = time.Hour // the loop repeats it
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

// block waits up to timeout for a completion event of a rail. It returns false after a timeout,
// else the caller must poll. If another goroutine waits, it sleeps for at most pollInterval.
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
