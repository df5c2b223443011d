package workload

import (
	"errors"
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
	via    *endpoint // rd: whose queue pair it uses, with others
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
	peerOverAt time.Duration
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

// wake has the connection looked at in the next turn.
func (c *conn) wake() {
	if !c.dirty {
		c.dirty = true
		c.n.dirty = append(c.n.dirty, c)
	}
}

func (c *conn) gone() bool { return c.n.peers[c.peer].gone }

// railOf is the rail that an epoch uses: both ends must come to the same.
func (c *conn) railOf(epoch int) *rail {
	num := c.edge.lane
	if c.n.cfg.Failover {
		num += epoch
	}
	return c.n.rails[num%len(c.n.rails)]
}

// sent reports that all requests of this end are over, notices included: the
// peer may be waiting for one.
func (c *conn) sent() bool {
	return !c.sq.busy() && (c.out == nil || c.out.complete()) && (c.add == nil || c.add.complete())
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
	if c.ah != nil {
		errs = append(errs, c.ah.Close())
		c.ah = nil
	}
	if c.via != nil { // others go on with it
		c.qp = nil
		c.rail.open--
		return errors.Join(errs...)
	}
	delete(c.rail.byQPN, c.receiver().QPN())
	if c.target != nil {
		errs = append(errs, c.target.Close())
		c.target = nil
	}
	errs = append(errs, c.qp.Close())
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
