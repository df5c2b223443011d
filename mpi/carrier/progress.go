package carrier

import (
	"errors"
	"runtime"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Progress takes in what has come and lets leave what can. It reports whether there
// was anything.
func (c *Carrier) Progress() (moved bool) {
	if !c.enter() {
		return false
	}
	defer c.exit()
	if c.woken.Swap(false) {
		c.rails[0].armed = false
	}
	moved = c.once()
	if !moved {
		armed := false
		for _, r := range c.rails {
			armed = r.arm() || armed
		}
		if armed { // what came before was told to nobody
			moved = c.once()
		}
	}
	c.noteStall()
	if moved || c.stirred {
		c.stirred = false
		c.moving.Store(int64(c.Now()))
	} else {
		c.listen()
	}
	at := c.nextLook()
	if t, ok := c.deadline(); ok {
		at = min(at, t)
	}
	c.due.Store(int64(at))
	return moved
}

// PollFast is a Progress that leaves what can wait to the next one: for who looks again
// and again, and would be kept from what has come by all that has not. Nobody may Wait
// after it. The time is that of the first of several, which follow each other closely: to
// read it takes as long as a part of what is to be done.
func (c *Carrier) PollFast(first bool) (moved bool) {
	read := c.nowRead
	if !c.enter() {
		return false
	}
	defer c.exit()
	if c.nowRead = read; first {
		c.nowRead = c.env.Proc.Now()
	}
	if moved = c.look(); !moved {
		return false
	}
	c.stirred = true // which Progress takes down the time of: the program may be kept waiting
	if len(c.busy)+len(c.own)+len(c.timed) > 0 || c.needsReceives() {
		c.tidy()
	}
	return true
}

// enter begins to take in what has come, unless that is being done: whoever is called
// meanwhile wants just that.
func (c *Carrier) enter() bool {
	if c.inside {
		return false
	}
	c.Flush()
	c.era++
	c.nowRead, c.inside = 0, true
	return true
}

func (c *Carrier) exit() { c.inside = false }

func (c *Carrier) once() (moved bool) {
	moved = c.look()
	return c.tidy() || moved
}

// look takes in what NICs and ranks of this host have brought.
func (c *Carrier) look() (moved bool) {
	for _, r := range c.rails {
		moved = r.poll() || moved
	}
	for _, ring := range c.rings {
		moved = ring.poll() || moved
	}
	for _, n := range c.neighbours {
		moved = n.poll() || moved
	}
	return moved
}

// tidy does what is to be done besides.
func (c *Carrier) tidy() (moved bool) {
	moved = c.takeOwn()
	moved = c.takeMail() || moved
	c.onTime()
	c.giveBackIdle()
	moved = c.pump() || moved
	c.bury()
	if err := c.release(c.Now()); err != nil {
		c.fault(err)
	}
	for _, r := range c.rails {
		r.repost()
	}
	return moved
}

// needsReceives reports whether receives should be posted again.
func (c *Carrier) needsReceives() bool {
	for _, r := range c.rails {
		if r.dg != nil && len(r.dg.recv.used) > 0 || r.srq != nil && r.srq.wantsRefill() {
			return true
		}
	}
	return false
}

// takeOwn takes words of this rank to itself.
func (c *Carrier) takeOwn() bool {
	if len(c.own) == 0 {
		return false
	}
	own := c.own
	c.own = nil
	for i := range own {
		if err := c.up.Arrived(c.env.Rank, &own[i].word, own[i].data); err != nil {
			c.fault(err)
		}
	}
	return true
}

// repost posts receives that were used, all at once.
func (r *rail) repost() {
	if r.dg != nil {
		if err := r.dg.recv.flush(); err != nil {
			r.c.fault(err)
		}
	}
	if r.srq != nil {
		r.srq.refill()
	}
}

// AllDelivered reports whether everything that was sent has arrived.
func (c *Carrier) AllDelivered() bool {
	if len(c.own) > 0 || len(c.busy) > 0 || len(c.filling) > 0 {
		return false
	}
	for _, p := range c.peers {
		if p == nil || p.lost != nil {
			continue
		}
		if len(p.unacked) > 0 || p.ackAt != 0 {
			return false
		}
		for _, k := range p.conns {
			if k != nil && k.under > 0 {
				return false
			}
		}
	}
	return true
}

// Rings and mailboxes wake nobody. Who waits looks into them every now and then: as if
// it had waited for a while already, and then after a part of what it has.
const (
	firstWait = 4 * time.Microsecond
	lastLook  = 10 * time.Millisecond
)

// Wait returns when something may have come, or when so much time has passed. Several
// may wait.
func (c *Carrier) Wait(most time.Duration) {
	now := c.env.Proc.Now()
	for began := now; ; now = c.env.Proc.Now() {
		left := most - (now - began)
		if most < 0 {
			left = time.Hour
		}
		if left <= 0 {
			return
		}
		if at := time.Duration(c.due.Load()); at != 0 {
			left = min(left, max(at-now, 0))
		}
		idle := now - time.Duration(c.moving.Load())
		if c.env.Concurrent && idle < c.cfg.Spin {
			runtime.Gosched() // what else there is to do here
			return
		}
		look := min(max(firstWait, idle)/time.Duration(c.cfg.PollBackoff), lastLook)
		looks := c.mustLook()
		if looks {
			left = min(left, look)
		}
		if c.park(left, look) || looks || left == 0 {
			return
		}
	}
}

// mustLook reports whether something may come that wakes nobody.
func (c *Carrier) mustLook() bool { return c.lookOut.Load() || len(c.rails) > 1 }

// park waits for a completion. It reports whether there may be one.
func (c *Carrier) park(d, look time.Duration) bool {
	if !c.parked.CompareAndSwap(false, true) {
		c.env.Proc.Sleep(min(d, look)) // another waits, and does what is to be done
		return true
	}
	defer c.parked.Store(false)
	r := c.rails[0]
	_, err := r.channel.Wait(d)
	if err == nil {
		c.woken.Store(true)
		return true
	}
	return !errors.Is(err, verbs.ErrTimeout)
}
