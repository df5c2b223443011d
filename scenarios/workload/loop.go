package workload

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// loop runs until every connection is over.
func (n *node) loop() error {
	for n.unfinished > 0 {
		n.now = n.proc.Now()
		moved, err := n.turn()
		if err != nil {
			return err
		}
		if moved {
			n.lastMove = n.now
			continue
		}
		if err := n.idle(); err != nil {
			return err
		}
	}
	return nil
}

// turn does what can be done now, and reports whether anything moved.
func (n *node) turn() (moved bool, err error) {
	if n.now >= n.nextLook {
		if moved, err = n.look(); err != nil {
			return moved, err
		}
	}
	if n.nextTimer > 0 && n.now >= n.nextTimer {
		n.nextTimer = 0
		for _, c := range n.conns {
			c.wake()
		}
	}
	list := n.dirty
	n.dirty = n.spare[:0]
	for _, c := range list {
		c.dirty = false
		did, err := c.step()
		if err != nil {
			return moved, err
		}
		moved = moved || did
	}
	n.spare = list
	for _, r := range n.rings {
		if !r.shared {
			continue // its connection sees to it
		}
		did, err := r.refill()
		if moved = moved || did; err != nil {
			return moved, err
		}
	}
	did, err := n.poll()
	n.log.sample(n.now)
	return moved || did, err
}

// look takes the notes that have come.
func (n *node) look() (moved bool, err error) {
	n.nextLook = n.now + n.tick()
	for _, p := range n.peerList {
		did, err := n.hear(p, 0)
		if moved = moved || did; err != nil {
			return moved, err
		}
	}
	if n.manners.ByCM {
		return moved, n.turnAway()
	}
	return moved, nil
}

// due reports whether a time has come. If not, it arms the timer, so that every
// connection and every shared ring is looked at again then. The timer keeps the
// earliest time only: whatever waits for a later one must ask again when it is
// looked at, and due is the only way to ask.
func (n *node) due(at time.Duration) bool {
	if n.now >= at {
		return true
	}
	if n.nextTimer == 0 || at < n.nextTimer {
		n.nextTimer = at
	}
	return false
}

// poll takes what has completed.
func (n *node) poll() (moved bool, err error) {
	var wcs [32]verbs.WC
	for _, r := range n.rails {
		if r.open == 0 && r.shared == nil {
			continue
		}
		for {
			k, err := r.cq.Poll(wcs[:])
			if err != nil {
				return moved, fmt.Errorf("rail %d: %w", r.num, err)
			}
			if k > 0 {
				n.now = n.proc.Now()
				moved = true
			}
			for i := range k {
				n.completed(r, &wcs[i])
			}
			if k < len(wcs) {
				break
			}
		}
	}
	return moved, nil
}

// completed hands a completion to the connection that it belongs to.
func (n *node) completed(r *rail, wc *verbs.WC) {
	if wc.WRID&recvBit != 0 {
		n.received(r, wc)
		return
	}
	i := int(wc.WRID >> connShift)
	if i >= len(n.conns) {
		n.log.violation(Completion, "%s: a completion of a request that nobody has posted, with ID %#x", hostOf(n.rank.Rank), wc.WRID)
		return
	}
	// What a queue pair that is gone has left behind is of no interest.
	if c := n.conns[i]; c.qp != nil && c.epoch&epochMask == int(wc.WRID>>32)&epochMask {
		c.sq.completed(wc)
	}
}

// received hands on a receive.
func (n *node) received(r *rail, wc *verbs.WC) {
	ringNum, slot := int(wc.WRID&^uint64(recvBit)>>ringShift), int(wc.WRID&seqMask)
	if ringNum >= len(n.rings) {
		n.log.violation(Completion, "%s: a receive completed that nobody has posted, with ID %#x", hostOf(n.rank.Rank), wc.WRID)
		return
	}
	ring := n.rings[ringNum]
	c := r.byQPN[wc.QPN]
	switch {
	case ring.owner != nil && ring.owner.qp == nil:
		return // left behind by a queue pair that is gone
	case ring.owner != nil && ring.owner != c:
		ring.owner.violation(Completion, "a receive completed for queue pair %#x, not %#x", wc.QPN, ring.owner.qp.QPN())
		c = ring.owner
	}
	if wrong := ring.take(slot); wrong != "" {
		n.log.violation(Completion, "%s: %s", hostOf(n.rank.Rank), wrong)
		if slot >= len(ring.wrs) {
			return
		}
	}
	if ring.via != nil {
		c = ring.via.whose(wc, slot)
	}
	switch {
	case c == nil:
		return // shared, and left behind
	case wc.Status != verbs.WCSuccess:
		c.fail(wc.Status)
		c.wake()
	default:
		c.received(wc, ring, slot)
	}
}
