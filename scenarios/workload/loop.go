package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// loop runs until every connection is over. While there is progress it polls; else it waits.
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
	if n.now >= n.nextControlPoll {
		if moved, err = n.pollControlMessages(); err != nil {
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
	n.scheduled = n.spareScheduled[:0] // for connections that are scheduled meanwhile
	for _, c := range list {
		c.scheduled = false
		did, err := c.step()
		if err != nil {
			return moved, err
		}
		moved = moved || did
	}
	n.spareScheduled = list
	for _, r := range n.recvRings {
		if !r.Shared {
			continue // the connection of this ring refills it
		}
		did, err := r.refill()
		moved = moved || did
		if err != nil {
			return moved, err
		}
	}
	did, err := n.poll()
	n.log.sample(n.now)
	return moved || did, err
}

// pollControlMessages receives the control messages of all peers, and reports whether there were
// any. Where only the CM connects queue pairs, it also rejects CM requests of earlier attempts.
func (n *node) pollControlMessages() (moved bool, err error) {
	n.nextControlPoll = n.now + n.tick()
	for _, p := range n.peerList {
		did, err := n.receiveControl(p, 0)
		moved = moved || did
		if err != nil {
			return moved, err
		}
	}
	if n.traits.ConnectsByCM {
		return moved, n.rejectStaleRequests()
	}
	return moved, nil
}

// poll handles all completions in the completion queues, and reports whether there were any.
func (n *node) poll() (moved bool, err error) {
	var wcs [32]verbs.WC
	for _, r := range n.rails {
		if r.openQPs == 0 && r.shared == nil {
			continue
		}
		for {
			k, err := r.CQs[0].Poll(wcs[:])
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
	if c := n.conns[i]; c.QP != nil && c.incarnation&incarnationMask == int(wc.WRID>>incarnationShift)&incarnationMask {
		c.requestCompleted(wc)
	}
}

// handleReceive passes a completed receive to its connection. It records a violation if the receive
// does not exist or completes for another queue pair, and ignores receives of closed queue pairs.
func (n *node) handleReceive(r *rail, wc *verbs.WC, ringNum int) {
	if ringNum >= len(n.recvRings) {
		n.log.violation(traffic.Completion, "%s: a receive completed with the unknown work request ID %#x", n.host(), wc.WRID)
		return
	}
	ring, c := n.recvRings[ringNum], (*conn)(nil)
	if i, ok := r.byQPN[wc.QPN]; ok {
		c = n.conns[i]
	}
	if ring.owner != noConn { // the receives of one connection
		owner := n.conns[ring.owner]
		if owner.QP == nil {
			return // of a closed queue pair
		}
		if owner != c {
			owner.violation(traffic.Completion, "a receive completed for queue pair %#x, not %#x", wc.QPN, owner.QP.QPN())
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
		return // of a closed connection, or no usable datagram
	case wc.Status != verbs.WCSuccess:
		c.fail(wc.Status)
		c.schedule()
	default:
		c.received(wc, ring, slot)
	}
}

// datagramConn returns the connection of a datagram; nil for a failed receive, an unknown source or
// a connection that has ended. A failed receive in the error state fails all connections of e.
func (n *node) datagramConn(e *endpoint, wc *verbs.WC, slot int) *conn {
	if wc.Status != verbs.WCSuccess {
		if e.broken() {
			for _, c := range n.conns {
				if c.endpoint == e && c.QP != nil {
					c.fail(wc.Status)
				}
			}
		}
		return nil
	}
	if i := e.connOf(wc, slot); i != noConn && n.conns[i].QP != nil {
		return n.conns[i]
	}
	return nil
}

const (
	// spinTicks is how many ticks a spinning rank polls without sleeping.
	spinTicks = 20
	// railPollInterval is how long a rank with several rails waits for events of one of them.
	railPollInterval = 50 * time.Microsecond
)

// stallTimeout is how long there may be no progress; verbs.Forever, which is negative, without a
// limit. It is long enough for requests to exhaust their retries.
func (n *node) stallTimeout() time.Duration {
	if n.rank.StallTimeout <= 0 {
		return verbs.Forever
	}
	code, _ := n.cfg.timing(n.rank.Concurrent)
	// Devices may take up to four times the timeout for each retry.
	return max(n.rank.StallTimeout, 4*verbs.AckTimeout(code)*time.Duration(*n.cfg.Retries+1)+n.cfg.Pause)
}

// waitForEvent waits for completions, control messages or timers. With Spin and open queue pairs it
// returns at once, or sleeps after a long idle time. After stallTimeout it returns a StallError.
func (n *node) waitForEvent() error {
	n.publish()
	wait := min(max(n.tick(), n.now-n.lastProgress), maxTicks*n.tick()) // longer after a longer idle time
	if n.nextTimer > 0 {
		wait = min(wait, max(n.nextTimer-n.now, 0))
	}
	if timeout := n.stallTimeout(); timeout > 0 {
		left := n.lastProgress + timeout - n.now
		if left <= 0 {
			return &traffic.StallError{After: timeout, Status: n.Status()}
		}
		wait = min(wait, left)
	}
	if n.cfg.Spin && n.railsInUse() > 0 {
		if idle := n.now - n.lastProgress; idle > spinTicks*n.tick() {
			n.proc.Sleep(min(idle/spinTicks, wait))
		}
		return nil
	}
	n.nextControlPoll = 0 // poll as soon as the wait is over
	if p := n.awaitedPeer(); p != nil {
		_, err := n.receiveControl(p, wait)
		return err
	}
	return n.waitCompletion(wait)
}

// railsInUse counts the rails with queue pairs.
func (n *node) railsInUse() (used int) {
	for _, r := range n.rails {
		if r.openQPs > 0 {
			used++
		}
	}
	return used
}

// awaitedPeer returns a peer whose control message the rank waits for; nil if a queue pair is
// connected, draining, or about to connect through the connection manager.
func (n *node) awaitedPeer() *peer {
	var waited *peer
	for _, c := range n.conns {
		switch c.state {
		case connUp, connDraining:
			return nil
		case connAwaitingInfo, connAwaitingReady:
			if c.cfg.CM {
				return nil
			}
			if waited == nil && !c.peer.gone {
				waited = c.peer
			}
		}
	}
	return waited
}

// waitCompletion returns when completions may have arrived, or after d. Of several rails it waits
// for one at a time, for a short time.
func (n *node) waitCompletion(d time.Duration) error {
	const solicitedOnly = false
	used := n.railsInUse()
	for _, r := range n.rails {
		if r.openQPs == 0 || r.armed {
			continue
		}
		if err := r.CQs[0].ReqNotify(solicitedOnly); err != nil {
			return err
		}
		r.armed = true
	}
	// Completions before ReqNotify raise no event.
	if did, err := n.poll(); did || err != nil {
		n.lastProgress = n.now
		return err
	}
	if used == 0 {
		n.proc.Sleep(d)
		return nil
	}
	if used > 1 {
		d = min(d, max(railPollInterval, n.pollBackoff()))
	}
	for n.rails[n.waitRail%len(n.rails)].openQPs == 0 {
		n.waitRail++
	}
	r := n.rails[n.waitRail%len(n.rails)]
	switch _, err := r.Channel.Wait(d); {
	case errors.Is(err, verbs.ErrTimeout):
		n.waitRail++
		return nil
	case err != nil:
		return err
	}
	r.armed = false
	return nil
}
