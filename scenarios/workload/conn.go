package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// edge is a connection of the workload between two ranks, with messages in one or both directions.
type edge struct {
	id       int
	ends     [2]int // ranks
	rail     int    // of the first incarnation
	messages [2]int // from ends[0], from ends[1]
}

// conn is a rank's end of an edge. It outlives queue pairs: each incarnation has a new one. After
// an error an end closes its queue pair, creates the next and sends its connInfo through Control;
// the other end follows. The connInfo says which messages arrived; the rest is sent again.
type conn struct {
	n *node
	link
	state     connState
	scheduled bool // in node.scheduled

	out *producer    // messages to the peer; nil if there are none
	in  *consumer    // messages from the peer; nil if there are none
	add *atomicAdder // atomics on memory of the peer; nil if there are none

	remoteEnd
	incarnationState
	wasUp        bool
	sentReported bool
	doneReported bool
}

// incarnationState is the state of the current incarnation.
type incarnationState struct {
	broken             bool // its failure was recorded
	carriedData        bool // it has delivered or completed something
	failedIncarnations int  // consecutive, without carriedData
	retryAt            time.Duration
	drainSince         time.Duration
}

// remoteEnd is what the peer has said about its end.
type remoteEnd struct {
	peerIncarnation int // of peerInfo; -1 before the first
	peerReady       int
	peerFinal       *final // its requests have completed
	peerSentAt      time.Duration
	peerDone        bool
	peerOver        bool
	peerOverAt      time.Duration
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

// scheduleStep queues the connection once: the next runOnce of its rank, c.n, calls its step. The
// connection's link has it as the callback "schedule".
func (c *conn) scheduleStep() {
	if !c.scheduled {
		c.scheduled = true
		c.n.scheduled = append(c.n.scheduled, c)
	}
}

// railOf is the rail of the connection in an incarnation (an attempt to connect, with its own queue
// pair): with Failover every incarnation uses the next rail. Both ends compute the same.
func (c *conn) railOf(incarnation int) *rail {
	num := c.edge.rail
	if c.cfg.Failover {
		num += incarnation
	}
	return c.n.rails[num%len(c.n.rails)]
}

// requestsDone reports whether all messages and atomics of this end were posted and have completed.
func (c *conn) requestsDone() bool {
	return c.sq.Outstanding() == 0 && (c.out == nil || c.out.complete()) && (c.add == nil || c.add.complete())
}

// finished reports whether both ends have completed.
func (c *conn) finished() bool { return c.state == connOver && c.doneReported && c.peerDone }

// finish ends a connection for good, after success or failure. It sends controlOver to the peer,
// unless both ends are done or the peer has sent controlOver first.
func (c *conn) finish() error {
	if !(c.doneReported && c.peerDone) && !c.peerOver {
		if err := c.sendControl(controlMessage{Kind: controlOver}); err != nil {
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

// controlMessage is a message between the two ends of a connection, sent through Control.
type controlMessage struct {
	Edge        int       `json:"edge"`
	Incarnation int       `json:"incarnation"` // of the connection
	Kind        string    `json:"kind"`
	ConnInfo    *connInfo `json:"info,omitempty"`
	Final       *final    `json:"final,omitempty"`
}

const (
	controlInfo  = "info"  // queue pair of this incarnation; the receiver closes that of the previous incarnation
	controlReady = "ready" // the queue pair can receive
	controlSent  = "sent"  // all requests of the sender have completed
	controlDone  = "done"  // and it expects no more messages
	controlOver  = "over"  // the connection has failed for good
)

// connInfo is what a peer needs to connect.
type connInfo struct {
	Rail int       `json:"rail"`
	GID  verbs.GID `json:"gid"`
	traffic.QPNumbers
	SRQN    uint32     `json:"srqn,omitempty"`
	PSN     uint32     `json:"psn"`
	Port    uint16     `json:"port,omitempty"` // of the connection manager
	Memory  uint64     `json:"memory,omitempty"`
	RKey    verbs.RKey `json:"rkey,omitempty"`
	Word    uint64     `json:"word,omitempty"` // for atomics
	WordKey verbs.RKey `json:"word_key,omitempty"`
	// Slots is the room in messages, and Next the first message that has not arrived.
	Slots int `json:"slots"`
	Next  int `json:"next"`
}

// final is the result of an end's requests when they have completed.
type final struct {
	Adds       int `json:"adds"`        // atomics posted
	AddsProven int `json:"adds_proven"` // atomics completed
}

// sendControl sends a control message about the connection. A peer that has ended is not an error.
func (c *conn) sendControl(n controlMessage) error {
	n.Edge, n.Incarnation = c.edge.id, c.incarnation
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := c.rank.Control.Send(c.peer.rank, b); err != nil && !errors.Is(err, ErrGone) {
		return fmt.Errorf("control message to rank %d: %w", c.peer.rank, err)
	}
	return nil
}

// receiveControl handles the pending control messages of a peer, waiting up to timeout for the
// first. It reports whether there were any, or the peer was found to have ended.
func (n *node) receiveControl(p *peer, timeout time.Duration) (heard bool, err error) {
	for !p.gone && p.open > 0 {
		b, err := n.rank.Control.Recv(p.rank, timeout)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return heard, nil
		case errors.Is(err, ErrGone):
			n.peerEnded(p)
			return true, nil
		case err != nil:
			return heard, fmt.Errorf("control message of rank %d: %w", p.rank, err)
		}
		heard, timeout = true, 0
		var m controlMessage
		if err := json.Unmarshal(b, &m); err != nil {
			return heard, fmt.Errorf("control message of rank %d: %w", p.rank, err)
		}
		c := n.byEdge[m.Edge]
		if c == nil || c.peer != p {
			return heard, fmt.Errorf("control message %q of rank %d about connection %d, which it is not part of: do all ranks run the same workload?", m.Kind, p.rank, m.Edge)
		}
		if err := c.handleControl(&m); err != nil {
			return heard, err
		}
	}
	return heard, nil
}

// peerEnded notes that a peer has ended, and logs that if a connection with it is unfinished.
func (n *node) peerEnded(p *peer) {
	p.gone = true
	early := false
	for _, c := range n.conns {
		if c.peer == p {
			early = early || !c.peerDone && c.state != connOver
			c.schedule()
		}
	}
	if early {
		n.log.mark("%s is gone", hostOf(p.rank))
	}
}

// handleControl stores the content of a control message of the peer, and schedules the connection.
func (c *conn) handleControl(m *controlMessage) error {
	c.schedule()
	switch {
	case m.Kind == controlInfo && m.ConnInfo != nil:
		c.peerInfo, c.peerIncarnation = m.ConnInfo, m.Incarnation
	case m.Kind == controlReady:
		c.peerReady = m.Incarnation
	case m.Kind == controlSent && m.Final != nil:
		c.peerFinal, c.peerSentAt = m.Final, c.now
	case m.Kind == controlDone:
		c.peerDone = true
	case m.Kind == controlOver:
		c.peerOver, c.peerOverAt = true, c.now
	default:
		return fmt.Errorf("control message %q of rank %d: do all ranks run the same workload?", m.Kind, c.peer.rank)
	}
	return nil
}
