package workload

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Backing off from a peer that cannot be reached, and giving up on it.
const (
	firstBackoff = time.Millisecond
	lastBackoff  = 128 * time.Millisecond
	maxFruitless = 60
)

// step moves the connection on as far as it goes now.
func (c *conn) step() (moved bool, err error) {
	for {
		before := c.state
		did := false
		switch c.state {
		case connWaiting:
			err = c.stepWaiting()
		case connCalling, connReady:
			err = c.stepCalling()
		case connUp:
			did, err = c.stepUp()
		case connDraining:
			err = c.stepDraining()
		case connOver:
			return moved, nil
		}
		if err != nil {
			return moved, fmt.Errorf("connection with rank %d on rail %d: %w", c.peer, c.rail.num, err)
		}
		moved = moved || did || c.state != before
		if c.state == before {
			return moved, nil
		}
	}
}

func (c *conn) stepWaiting() error {
	if c.needless() {
		return c.end()
	}
	if c.peerEpoch < c.epoch {
		if c.satisfied() {
			return nil // whether there is to be another, the peer must say
		}
		if !c.n.due(c.retryAt) {
			return nil
		}
	}
	c.epoch = max(c.epoch, c.peerEpoch)
	if err := c.open(); err != nil {
		return err
	}
	c.state = connCalling
	return nil
}

// needless reports that the connection is of no use any more: both ends are
// done, or one has given up.
func (c *conn) needless() bool { return c.saidDone && c.peerDone || c.peerOver || c.gone() }

// satisfied reports that this end is done and owes the peer nothing: if the peer
// misses anything, requests of its own fail. Only one whose messages are read
// must tell the peer once more, on every connection, that they are there; and one
// whose requests complete before they have arrived does not know.
func (c *conn) satisfied() bool {
	return c.saidDone && (c.out == nil || c.n.cfg.Op != OpRead && !c.n.manners.Unproven)
}

// stepCalling takes a queue pair that waits for its peer further.
func (c *conn) stepCalling() error {
	if c.needless() || c.peerEpoch > c.epoch || c.broken {
		return c.shut()
	}
	if c.state == connCalling {
		if c.peerEpoch < c.epoch {
			return nil
		}
		ok, err := c.join()
		if err != nil || !ok {
			return err
		}
		c.state = connReady
		return c.tell(note{Kind: noteReady})
	}
	if c.peerReady == c.epoch {
		c.state = connUp
		c.wasUp = true
		c.n.connected()
	}
	return nil
}

// stepUp exchanges messages.
func (c *conn) stepUp() (bool, error) {
	if c.awaitsStatus() {
		return false, nil
	}
	if c.peerOver || c.peerEpoch > c.epoch || c.broken {
		return true, c.shut()
	}
	moved, err := c.pump()
	if err != nil || c.broken {
		return moved, err
	}
	if err := c.reportEnd(); err != nil {
		return true, err
	}
	switch {
	case c.saidDone && c.peerDone:
		c.prove()
		return true, c.shut()
	case c.gone() && !c.sq.busy():
		// Nothing is under way that could fail, and nothing will come.
		return true, c.shut()
	}
	return moved, nil
}

// awaitsStatus reports whether requests are outstanding whose responses may still arrive
// although the peer has ended: its NAK is a packet, and its note can overtake it. A queue
// pair that is taken to the error state at once would flush them without their status.
func (c *conn) awaitsStatus() bool {
	return c.peerOver && !c.broken && c.sq.busy() && !c.n.due(c.peerOverAt+c.n.grace)
}

// reportEnd tells the peer when this end's requests are over, and when it has
// nothing more to expect either.
func (c *conn) reportEnd() error {
	if c.out != nil && !c.saidSent && c.sent() {
		c.saidSent = true
		f := new(final)
		if c.add != nil {
			f.Adds, f.AddsProven = c.add.posted, c.add.done
		}
		if err := c.tell(note{Kind: noteSent, Final: f}); err != nil {
			return err
		}
	}
	if !c.saidDone && c.sent() && (c.in == nil || c.in.complete()) {
		c.saidDone = true
		return c.tell(note{Kind: noteDone})
	}
	return nil
}

// fail notes a completion with an error, the first of its epoch: those that
// follow are flushed because of it. To an end that is done it does not matter:
// most likely the peer is done as well and its word is still on the way.
//
// The peer's word that it is over can be here before the completion that says
// why: so an error counts while the queue pair is taken down too, unless that is
// what flushed the request.
func (c *conn) fail(status verbs.WCStatus) {
	if c.broken || c.state == connOver || c.state == connDraining && status == verbs.WCWRFlushErr {
		return
	}
	c.broken = true
	if !c.saidDone {
		c.n.log.failed(c.n.now, c.peer, c.rail.num, status)
	}
	c.wake()
}

// prove notes that the epoch's connection has carried something.
func (c *conn) prove() {
	if c.proven {
		return
	}
	c.proven, c.fruitless = true, 0
	if c.epoch == 0 {
		return
	}
	c.n.log.reconnects++
	if c.n.cfg.Failover {
		c.n.log.mark("failover to rail %d", c.rail.num)
	} else {
		c.n.log.mark("reconnected %s", hostOf(c.peer))
	}
}

// shut takes the queue pair to the error state and marks the end of its
// requests: whatever is before the mark has completed when the mark has.
func (c *conn) shut() error {
	c.state = connDraining
	c.shutAt = c.n.now
	if c.via != nil {
		return nil // others use the queue pair: its own requests end by themselves
	}
	for _, qp := range []verbs.QP{c.qp, c.target} {
		if qp == nil {
			continue
		}
		if err := qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil {
			return err
		}
	}
	return c.sq.mark()
}

// stepDraining waits until everything that the queue pair had has completed.
func (c *conn) stepDraining() error {
	if c.via != nil && c.sq.busy() {
		return nil
	}
	if c.sq.marked || !c.recv.shared && c.recv.waiting > 0 {
		if !c.n.due(c.shutAt + c.n.grace) {
			return nil
		}
		c.violation(Completion, "a queue pair in the error state left %d receives and %d requests without a completion", c.recv.waiting, c.sq.next-c.sq.settled)
	}
	if err := c.closeQP(); err != nil {
		return err
	}
	if !c.proven {
		c.fruitless++
	}
	if c.needless() || c.peerEpoch <= c.epoch && !c.satisfied() && !c.again() {
		return c.end()
	}
	backoff := time.Duration(0)
	if c.saidDone {
		backoff = 2 * c.n.tick() // the peer's word that it is done may be on the way
	}
	if c.fruitless > 0 {
		backoff = min(firstBackoff<<min(c.fruitless-1, 20), lastBackoff)
	}
	c.retryAt = c.n.now + backoff
	c.epoch++
	c.broken, c.proven = false, false
	c.state = connWaiting
	return nil
}

// again reports whether to connect anew.
func (c *conn) again() bool {
	switch {
	case c.fruitless > maxFruitless:
		c.n.log.mark("gave up on %s", hostOf(c.peer))
		return false
	case c.n.cfg.Reconnect:
		return true
	}
	return c.n.cfg.Failover && c.epoch+1 < len(c.n.rails)
}
