package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// note is what the two ends of a connection tell each other through Control.
type note struct {
	Edge  int    `json:"edge"`
	Epoch int    `json:"epoch"` // of the connection it is about
	Kind  string `json:"kind"`
	Card  *card  `json:"card,omitempty"`
	Final *final `json:"final,omitempty"`
}

const (
	noteCard  = "card"  // my queue pair for this epoch; yours of the one before is to end
	noteReady = "ready" // it can receive
	noteSent  = "sent"  // all my requests have completed
	noteDone  = "done"  // and I have nothing more to expect
	noteOver  = "over"  // this connection has failed for good
)

// card is what a peer must know to connect.
type card struct {
	Rail    int        `json:"rail"`
	GID     verbs.GID  `json:"gid"`
	QPN     verbs.QPN  `json:"qpn"`
	XRC     verbs.QPN  `json:"xrc,omitempty"` // the queue pair that receives, on XRC
	SRQN    uint32     `json:"srqn,omitempty"`
	PSN     uint32     `json:"psn"`
	Port    uint16     `json:"port,omitempty"` // to connect to through the connection manager
	Memory  uint64     `json:"memory,omitempty"`
	RKey    verbs.RKey `json:"rkey,omitempty"`
	Word    uint64     `json:"word,omitempty"` // for atomics
	WordKey verbs.RKey `json:"word_key,omitempty"`
	// Slots is how many messages there is room for, and Next the first message
	// that has not arrived.
	Slots int `json:"slots"`
	Next  int `json:"next"`
}

// receiver is the queue pair that messages go to.
func (c *card) receiver() verbs.QPN {
	if c.XRC != 0 {
		return c.XRC
	}
	return c.QPN
}

// final is what an end says of its own requests when they are over.
type final struct {
	Adds       int `json:"adds"`        // atomics posted
	AddsProven int `json:"adds_proven"` // and completed
}

// tell sends a note about the connection. A peer that has ended hears nothing,
// which it is no error to try.
func (c *conn) tell(n note) error {
	n.Edge, n.Epoch = c.edge.id, c.epoch
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := c.n.rank.Control.Send(c.peer, b); err != nil && !errors.Is(err, ErrGone) {
		return fmt.Errorf("note to rank %d: %w", c.peer, err)
	}
	return nil
}

// hear takes the notes of one peer that have come, waiting for timeout for the
// first.
func (n *node) hear(p *peer, timeout time.Duration) (heard bool, err error) {
	for !p.gone && p.open > 0 {
		b, err := n.rank.Control.Recv(p.rank, timeout)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return heard, nil
		case errors.Is(err, ErrGone):
			n.lost(p)
			return true, nil
		case err != nil:
			return heard, fmt.Errorf("note of rank %d: %w", p.rank, err)
		}
		heard, timeout = true, 0
		var m note
		if err := json.Unmarshal(b, &m); err != nil {
			return heard, fmt.Errorf("note of rank %d: %w", p.rank, err)
		}
		c := n.byEdge[m.Edge]
		if c == nil || c.peer != p.rank {
			return heard, fmt.Errorf("note %q of rank %d about connection %d, which it has no part in: do all ranks run the same workload?", m.Kind, p.rank, m.Edge)
		}
		if err := c.heard(&m); err != nil {
			return heard, err
		}
	}
	return heard, nil
}

// lost notes that a peer has ended. That is no news if it was done.
func (n *node) lost(p *peer) {
	p.gone = true
	early := false
	for _, c := range n.conns {
		if c.peer == p.rank {
			early = early || !c.peerDone && c.state != connOver
			c.wake()
		}
	}
	if early {
		n.log.mark("%s is gone", hostOf(p.rank))
	}
}

// heard does what a note asks for.
func (c *conn) heard(m *note) error {
	c.wake()
	switch m.Kind {
	case noteCard:
		if m.Card == nil {
			break
		}
		c.peerCard, c.peerEpoch = m.Card, m.Epoch
		return nil
	case noteReady:
		c.peerReady = m.Epoch
		return nil
	case noteSent:
		if m.Final == nil {
			break
		}
		c.peerFinal = m.Final
		c.peerSentAt = c.n.now
		return nil
	case noteDone:
		c.peerDone = true
		return nil
	case noteOver:
		c.peerOver, c.peerOverAt = true, c.n.now
		return nil
	}
	return fmt.Errorf("note %q of rank %d: do all ranks run the same workload?", m.Kind, c.peer)
}
