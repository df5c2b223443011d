package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// edge is a connection of a workload, as everyone knows it: between two ranks,
// with messages one way or both.
type edge struct {
	id       int
	ends     [2]int // ranks
	lane     int    // which of the pair's edges it is, and the rail it begins on
	messages [2]int // from ends[0], from ends[1]
}

// conn is a rank's end of an edge. It outlives queue pairs: each epoch has one
// of its own. Both ends agree on epochs through Control: an end that sees an
// error ends its queue pair, makes the next, and sends its card; the other end
// follows. Cards say what had arrived, so that exactly the rest is sent again.
type conn struct {
	n     *node
	num   int // in work request IDs
	edge  edge
	me    int // which end of the edge
	peer  int // rank
	state connState
	dirty bool // it is to be looked at

	rail   *rail
	epoch  int
	qp     verbs.QP // sends; receives too, but on XRC
	target verbs.QP // XRC: receives
	xrcd   verbs.XRCD
	srq    verbs.SRQ // XRC: of its own
	ah     verbs.AH
	link   verbs.Conn // made by the connection manager
	sq     sendQueue
	recv   *ring   // the connection's own, or shared
	mem    *memory // what only this end touches: receives, messages to be sent or read into
	public *memory // what the peer works on
	layout layout

	out *producer // messages to the peer; nil if there are none
	in  *consumer // messages from it; nil if there are none
	add *adder    // atomics on the peer's memory; nil if there are none

	peerCard   *card
	peerEpoch  int // of the card; -1 before the first
	peerReady  int
	peerFinal  *final // its requests are over
	peerSentAt time.Duration
	peerDone   bool
	peerOver   bool
	wasUp      bool
	saidSent   bool
	saidDone   bool

	broken    bool // this epoch's failure has been noted
	proven    bool // this epoch has carried something
	fruitless int  // epochs in a row that did not
	retryAt   time.Duration
	shutAt    time.Duration
	credited  int    // the last number in a notice of ours, counted like in.next
	produced  int    // likewise, of out.next
	idleMark  uint64 // what had arrived when the quiet began
	quietFrom time.Duration
}

type connState uint8

const (
	connWaiting connState = iota // for the time to make a queue pair
	connCalling                  // for the peer's card
	connReady                    // for the peer to be ready
	connUp
	connDraining // for what is left of a queue pair in the error state
	connOver
)

func (s connState) String() string {
	return [...]string{"about to connect", "waiting for the peer's queue pair", "waiting for the peer to be ready", "connected", "draining", "over"}[s]
}

// Backing off from a peer that cannot be reached, and giving up on it.
const (
	firstBackoff = time.Millisecond
	lastBackoff  = 128 * time.Millisecond
	maxFruitless = 60
)

// wake has the connection looked at in the next turn.
func (c *conn) wake() {
	if !c.dirty {
		c.dirty = true
		c.n.dirty = append(c.n.dirty, c)
	}
}

func (c *conn) gone() bool { return c.n.peers[c.peer].gone }

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
	if c.peerOver || c.gone() {
		return c.end()
	}
	if c.peerEpoch > c.epoch {
		c.epoch = c.peerEpoch
	}
	if c.peerEpoch < c.epoch && c.n.now < c.retryAt {
		c.n.timer(c.retryAt)
		return nil
	}
	if err := c.open(); err != nil {
		return err
	}
	c.state = connCalling
	return nil
}

// stepCalling takes a queue pair that waits for its peer further.
func (c *conn) stepCalling() error {
	if c.peerOver || c.gone() || c.peerEpoch > c.epoch || c.broken {
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

// reportEnd tells the peer when this end's requests are over, and when it has
// nothing more to expect either.
func (c *conn) reportEnd() error {
	if c.out != nil && !c.saidSent && c.sent() {
		c.saidSent = true
		f := &final{Posted: c.out.next}
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
// follow are flushed because of it.
func (c *conn) fail(status verbs.WCStatus) {
	if c.broken || c.state == connDraining || c.state == connOver {
		return
	}
	c.broken = true
	c.n.log.failed(c.n.now, c.peer, c.rail.num, status)
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
	if c.sq.marked || !c.recv.shared && c.recv.waiting > 0 {
		if until := c.shutAt + c.n.grace; c.n.now < until {
			c.n.timer(until)
			return nil
		}
		c.violation("a queue pair in the error state left %d receives and %d requests without a completion", c.recv.waiting, c.sq.next-c.sq.settled)
	}
	if err := c.closeQP(); err != nil {
		return err
	}
	if c.saidDone && c.peerDone {
		return c.end()
	}
	if !c.proven {
		c.fruitless++
	}
	if c.peerOver || c.gone() || c.peerEpoch <= c.epoch && !c.again() {
		return c.end()
	}
	backoff := time.Duration(0)
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

// railOf is the rail that an epoch uses: both ends must come to the same.
func (c *conn) railOf(epoch int) *rail {
	num := c.edge.lane
	if c.n.cfg.Failover {
		num += epoch
	}
	return c.n.rails[num%len(c.n.rails)]
}

// sent reports that all requests of this end are over.
func (c *conn) sent() bool {
	return (c.out == nil || c.out.complete()) && (c.add == nil || c.add.complete())
}

// finished reports that the connection came to a good end.
func (c *conn) finished() bool { return c.state == connOver && c.saidDone && c.peerDone }

// end is the last thing that happens to a connection, for better or worse.
func (c *conn) end() error {
	if !(c.saidDone && c.peerDone) && !c.peerOver {
		if err := c.tell(note{Kind: noteOver}); err != nil {
			return err
		}
	}
	c.state = connOver
	c.n.peers[c.peer].open--
	c.n.unfinished--
	if c.n.onOver != nil {
		c.n.onOver(c)
	}
	return c.closeQP()
}

// closeQP destroys what an epoch has made.
func (c *conn) closeQP() error {
	if c.qp == nil {
		return nil
	}
	var errs []error
	if c.link != nil {
		errs = append(errs, c.link.Disconnect())
		c.link = nil
	}
	c.n.forgetQPs(c.qp, c.target)
	delete(c.rail.byQPN, c.receiver().QPN())
	if c.target != nil {
		errs = append(errs, c.target.Close())
		c.target = nil
	}
	errs = append(errs, c.qp.Close())
	if c.ah != nil {
		errs = append(errs, c.ah.Close())
		c.ah = nil
	}
	c.qp = nil
	c.rail.open--
	return errors.Join(errs...)
}

// receiver is the queue pair that messages come in on.
func (c *conn) receiver() verbs.QP {
	if c.target != nil {
		return c.target
	}
	return c.qp
}
