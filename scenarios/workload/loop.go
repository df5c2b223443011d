package workload

import (
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// loop runs until every connection is over.
func (n *node) loop() error {
	for n.unfinished > 0 {
		n.now = n.proc.Now()
		moved, err := n.runOnce()
		if err != nil {
			return err
		}
		if moved {
			n.lastProgress = n.now
			continue
		}
		if err := n.waitForEvent(); err != nil {
			return err
		}
	}
	return nil
}

// runOnce does everything that is possible now, and reports whether there was progress.
func (n *node) runOnce() (moved bool, err error) {
	if n.now >= n.nextNotePoll {
		if moved, err = n.pollNotes(); err != nil {
			return moved, err
		}
	}
	if n.nextTimer > 0 && n.now >= n.nextTimer {
		n.nextTimer = 0
		for _, c := range n.conns {
			c.schedule()
		}
	}
	list := n.scheduled
	n.scheduled = n.spareScheduled[:0]
	for _, c := range list {
		c.scheduled = false
		did, err := c.step()
		if err != nil {
			return moved, err
		}
		moved = moved || did
	}
	n.spareScheduled = list
	for _, r := range n.rings {
		if !r.Shared() {
			continue // its connection refills it
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

// pollNotes receives the notes of all peers.
func (n *node) pollNotes() (moved bool, err error) {
	n.nextNotePoll = n.now + n.tick()
	for _, p := range n.peerList {
		did, err := n.receiveNotes(p, 0)
		if moved = moved || did; err != nil {
			return moved, err
		}
	}
	if n.traits.ConnectsByCM {
		return moved, n.rejectStaleRequests()
	}
	return moved, nil
}

// poll handles completions.
func (n *node) poll() (moved bool, err error) {
	var wcs [32]verbs.WC
	for _, r := range n.rails {
		if r.openQPs == 0 && r.shared == nil {
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
				n.handleCompletion(r, &wcs[i])
			}
			if k < len(wcs) {
				break
			}
		}
	}
	return moved, nil
}

// handleCompletion passes a completion to its connection.
func (n *node) handleCompletion(r *rail, wc *verbs.WC) {
	if ring, ok := traffic.RingOf(wc.WRID); ok {
		n.handleReceive(r, wc, ring)
		return
	}
	i := int(wc.WRID >> connShift)
	if i >= len(n.conns) {
		n.log.violation(traffic.Completion, "%s: a completion with the unknown work request ID %#x", n.host(), wc.WRID)
		return
	}
	// Late completions of closed queue pairs are ignored.
	if c := n.conns[i]; c.qp != nil && c.epoch&epochMask == int(wc.WRID>>epochShift)&epochMask {
		c.requestCompleted(wc)
	}
}

// handleReceive passes a completed receive to its connection.
func (n *node) handleReceive(r *rail, wc *verbs.WC, ringNum int) {
	if ringNum >= len(n.rings) {
		n.log.violation(traffic.Completion, "%s: a receive completed with the unknown work request ID %#x", n.host(), wc.WRID)
		return
	}
	ring, c := n.rings[ringNum], (*conn)(nil)
	if i, ok := r.byQPN[wc.QPN]; ok {
		c = n.conns[i]
	}
	if ring.owner != noConn {
		owner := n.conns[ring.owner]
		if owner.qp == nil {
			return // of a closed queue pair
		}
		if owner != c {
			owner.violation(traffic.Completion, "a receive completed for queue pair %#x, not %#x", wc.QPN, owner.qp.QPN())
			c = owner
		}
	}
	slot, err := ring.complete(wc.WRID)
	if err != nil {
		n.log.violation(traffic.Completion, "%s: %v", n.host(), err)
		if slot < 0 {
			return
		}
	}
	if ring.endpoint != nil {
		c = n.datagramConn(ring.endpoint, wc, slot)
	}
	switch {
	case c == nil:
		return // of a closed connection
	case wc.Status != verbs.WCSuccess:
		c.fail(wc.Status)
		c.schedule()
	default:
		c.received(wc, ring, slot)
	}
}

// datagramConn returns the connection of a datagram; nil if it has none or has ended. If the
// queue pair is in the error state, all its connections fail.
func (n *node) datagramConn(e *endpoint, wc *verbs.WC, slot int) *conn {
	if wc.Status != verbs.WCSuccess {
		if e.broken() {
			for _, c := range n.conns {
				if c.endpoint == e && c.qp != nil {
					c.fail(wc.Status)
				}
			}
		}
		return nil
	}
	if i := e.connOf(wc, slot); i != noConn && n.conns[i].qp != nil {
		return n.conns[i]
	}
	return nil
}
