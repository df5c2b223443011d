package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// How often a rank looks for notes of its peers while completions come, and how
// long it waits for the latter at a time.
const (
	simTick  = 100 * time.Microsecond
	realTick = time.Millisecond
	maxTicks = 32 // a wait grows to so many while nothing happens
	// spinFor is how many ticks a rank that polls goes on polling in vain before
	// it rests between looks.
	spinFor = 20
	// severalRails is how long one rail's events are waited for before the others
	// are looked at.
	severalRails = 50 * time.Microsecond
)

// StuckError is a program whose Patience is exhausted.
type StuckError struct {
	After time.Duration
	Waits string // as Program.Status says
}

// Error says what the program was waiting for.
func (e *StuckError) Error() string {
	return fmt.Sprintf("nothing happened for %v: %s", e.After, e.Waits)
}

func (n *node) tick() time.Duration {
	if n.rank.Concurrent {
		return realTick
	}
	return simTick
}

// patience is how long nothing may happen. It is never so short that a request
// could not fail first for want of an answer.
func (n *node) patience() time.Duration {
	if n.rank.Patience <= 0 {
		return verbs.Forever
	}
	code, _ := n.cfg.timing(n.rank.Concurrent)
	// Devices may take up to four times the timeout, for each of the tries.
	return max(n.rank.Patience, 4*timeoutOf(code)*time.Duration(*n.cfg.Retries+1)+n.cfg.Pause)
}

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
	for _, r := range n.rails {
		if r.shared != nil {
			did, err := r.shared.refill()
			if moved = moved || did; err != nil {
				return moved, err
			}
		}
	}
	if n.cfg.service() == ServiceXRC {
		for _, c := range n.conns {
			did, err := c.recv.refill()
			if moved = moved || did; err != nil {
				return moved, err
			}
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
	return moved, nil
}

// timer has all connections looked at when the time has come.
func (n *node) timer(at time.Duration) {
	if n.nextTimer == 0 || at < n.nextTimer {
		n.nextTimer = max(at, 1)
	}
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
		n.log.violation("%s: a completion of a request that nobody has posted, with ID %#x", hostOf(n.rank.Rank), wc.WRID)
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
		n.log.violation("%s: a receive completed that nobody has posted, with ID %#x", hostOf(n.rank.Rank), wc.WRID)
		return
	}
	ring := n.rings[ringNum]
	c := r.byQPN[wc.QPN]
	switch {
	case ring.owner != nil && ring.owner.qp == nil:
		return // left behind by a queue pair that is gone
	case ring.owner != nil && ring.owner != c:
		ring.owner.violation("a receive completed for queue pair %#x, not %#x", wc.QPN, ring.owner.qp.QPN())
		c = ring.owner
	}
	if wrong := ring.take(slot); wrong != "" {
		n.log.violation("%s: %s", hostOf(n.rank.Rank), wrong)
		if slot >= len(ring.wrs) {
			return
		}
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

// idle waits for something to happen.
func (n *node) idle() error {
	n.publish()
	wait := min(max(n.tick(), n.now-n.lastMove), maxTicks*n.tick())
	if n.nextTimer > 0 {
		// Its own timers are no reason to despair.
		n.lastMove = max(n.lastMove, min(n.nextTimer, n.now))
		wait = min(wait, max(n.nextTimer-n.now, 0))
	}
	if p := n.patience(); p > 0 {
		left := n.lastMove + p - n.now
		if left <= 0 {
			return &StuckError{After: p, Waits: n.Status()}
		}
		wait = min(wait, left)
	}
	if n.cfg.Spin {
		if idle := n.now - n.lastMove; idle > spinFor*n.tick() {
			n.proc.Sleep(min(idle/spinFor, wait))
		}
		return nil
	}
	n.nextLook = 0 // look as soon as the wait is over
	if p := n.silent(); p != nil {
		_, err := n.hear(p, wait)
		return err
	}
	return n.await(wait)
}

// silent returns a peer to wait for if nothing can happen without its word: no
// queue pair is connected.
func (n *node) silent() *peer {
	var waited *peer
	for _, c := range n.conns {
		switch c.state {
		case connUp, connDraining:
			return nil
		case connCalling, connReady:
			if c.n.cfg.CM {
				return nil
			}
			if waited == nil && !c.gone() {
				waited = n.peers[c.peer]
			}
		}
	}
	return waited
}

// await returns when completions may have come, or d has passed.
func (n *node) await(d time.Duration) error {
	used := 0
	for _, r := range n.rails {
		if r.open == 0 {
			continue
		}
		used++
		if !r.armed {
			if err := r.cq.Arm(false); err != nil {
				return err
			}
			r.armed = true
		}
	}
	// What came before would raise no event.
	if did, err := n.poll(); did || err != nil {
		n.lastMove = n.now
		return err
	}
	if used == 0 {
		n.proc.Sleep(d)
		return nil
	}
	if used > 1 {
		d = min(d, severalRails)
	}
	for n.rails[n.favourite%len(n.rails)].open == 0 {
		n.favourite++
	}
	r := n.rails[n.favourite%len(n.rails)]
	switch _, err := r.channel.Wait(d); {
	case errors.Is(err, verbs.ErrTimeout):
		n.favourite++
		return nil
	case err != nil:
		return err
	}
	r.armed = false
	return nil
}
