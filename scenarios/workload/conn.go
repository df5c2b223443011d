package workload

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// edge is a connection of the workload between two ranks, with messages in one or both
// directions.
type edge struct {
	id       int
	ends     [2]int // ranks
	rail     int    // of the first epoch
	messages [2]int // from ends[0], from ends[1]
}

// conn is a rank's end of an edge. It outlives queue pairs: each epoch has a new one. An
// end that sees an error closes its queue pair, creates the next and sends its connInfo
// through Control, and the other end follows. The connInfo says which messages have
// arrived; the rest is sent again.
type conn struct {
	n         *node
	index     int // in work request IDs
	edge      edge
	side      int // 0 or 1: index in edge.ends
	peer      int // rank
	state     connState
	scheduled bool // in node.scheduled

	rail     *rail
	endpoint *endpoint // rd: shared queue pair
	epoch    int
	qp       verbs.QP // sends, and receives except on XRC
	target   verbs.QP // XRC: receives
	xrcd     verbs.XRCD
	srq      verbs.SRQ // XRC only
	ah       verbs.AH
	cmConn   verbs.Conn // of the connection manager
	sq       sendQueue
	recv     *recvRing // of the connection, or shared
	mem      *memory   // local access only: receives, and messages to send or to read into
	public   *memory   // that the peer accesses
	layout   layout

	out *producer    // messages to the peer; nil if there are none
	in  *consumer    // messages from the peer; nil if there are none
	add *atomicAdder // atomics on memory of the peer; nil if there are none

	peerInfo     *connInfo
	peerEpoch    int // of peerInfo; -1 before the first
	peerReady    int
	peerFinal    *final // its requests have completed
	peerSentAt   time.Duration
	peerDone     bool
	peerOver     bool
	peerOverAt   time.Duration
	wasUp        bool
	sentReported bool
	doneReported bool

	broken       bool // the failure of this epoch was recorded
	carriedData  bool // this epoch has delivered or completed something
	failedEpochs int  // consecutive, without carriedData
	retryAt      time.Duration
	drainSince   time.Duration
	creditSent   int    // value of in.next in the last credit notice
	readableSent int    // value of out.next in the last readable notice
	quietCount   uint64 // arrivals at quietSince
	quietSince   time.Duration
}

type connState uint8

const (
	connWaiting       connState = iota // for the time to create a queue pair
	connAwaitingInfo                   // for the connInfo of the peer
	connAwaitingReady                  // for the peer to be ready
	connUp
	connDraining // for completions of a queue pair in the error state
	connOver
)

func (s connState) String() string {
	return [...]string{"about to connect", "waiting for the peer's queue pair", "waiting for the peer to be ready", "connected", "draining", "over"}[s]
}

// schedule makes the next runOnce step the connection.
func (c *conn) schedule() {
	if !c.scheduled {
		c.scheduled = true
		c.n.scheduled = append(c.n.scheduled, c)
	}
}

func (c *conn) peerGone() bool { return c.n.peers[c.peer].gone }

// railOf is the rail of an epoch, the same at both ends.
func (c *conn) railOf(epoch int) *rail {
	num := c.edge.rail
	if c.n.cfg.Failover {
		num += epoch
	}
	return c.n.rails[num%len(c.n.rails)]
}

// requestsDone reports whether all requests of this end have completed, notices included.
func (c *conn) requestsDone() bool {
	return !c.sq.busy() && (c.out == nil || c.out.complete()) && (c.add == nil || c.add.complete())
}

// finished reports whether both ends have completed.
func (c *conn) finished() bool { return c.state == connOver && c.doneReported && c.peerDone }

// finish ends a connection for good, after success or failure.
func (c *conn) finish() error {
	if !(c.doneReported && c.peerDone) && !c.peerOver {
		if err := c.sendNote(note{Kind: noteOver}); err != nil {
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

// closeQP destroys the resources of an epoch.
func (c *conn) closeQP() error {
	if c.qp == nil {
		return nil
	}
	var errs []error
	if c.cmConn != nil {
		errs = append(errs, c.cmConn.Disconnect())
		c.cmConn = nil
	}
	c.n.removeQPs(c.qp, c.target)
	if c.ah != nil {
		errs = append(errs, c.ah.Close())
		c.ah = nil
	}
	if c.endpoint != nil { // other connections use the queue pair
		c.qp = nil
		c.rail.openQPs--
		return errors.Join(errs...)
	}
	delete(c.rail.byQPN, c.receiver().QPN())
	if c.target != nil {
		errs = append(errs, c.target.Close())
		c.target = nil
	}
	errs = append(errs, c.qp.Close())
	c.qp = nil
	c.rail.openQPs--
	return errors.Join(errs...)
}

// receiver is the queue pair that receives.
func (c *conn) receiver() verbs.QP {
	if c.target != nil {
		return c.target
	}
	return c.qp
}
