package workload

import (
	"time"
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
	n *node
	link
	state     connState
	scheduled bool // in node.scheduled

	out *producer    // messages to the peer; nil if there are none
	in  *consumer    // messages from the peer; nil if there are none
	add *atomicAdder // atomics on memory of the peer; nil if there are none

	remoteEnd
	attempt
	wasUp        bool
	sentReported bool
	doneReported bool
}

// attempt is the state of the current epoch.
type attempt struct {
	broken       bool // its failure was recorded
	carriedData  bool // it has delivered or completed something
	failedEpochs int  // consecutive, without carriedData
	retryAt      time.Duration
	drainSince   time.Duration
}

// remoteEnd is what the peer has said about its end.
type remoteEnd struct {
	peerEpoch  int // of peerInfo; -1 before the first
	peerReady  int
	peerFinal  *final // its requests have completed
	peerSentAt time.Duration
	peerDone   bool
	peerOver   bool
	peerOverAt time.Duration
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

// scheduleStep makes the next runOnce step the connection.
func (c *conn) scheduleStep() {
	if !c.scheduled {
		c.scheduled = true
		c.n.scheduled = append(c.n.scheduled, c)
	}
}

// railOf is the rail of an epoch, the same at both ends.
func (c *conn) railOf(epoch int) *rail {
	num := c.edge.rail
	if c.cfg.Failover {
		num += epoch
	}
	return c.n.rails[num%len(c.n.rails)]
}

// requestsDone reports whether all requests of this end have completed, notices included.
func (c *conn) requestsDone() bool {
	return c.sq.Outstanding() == 0 && (c.out == nil || c.out.complete()) && (c.add == nil || c.add.complete())
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
	c.peer.open--
	c.n.unfinished--
	if c.n.onOver != nil {
		c.n.onOver(c)
	}
	return c.closeQP()
}
