package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// note is a message of the Exchange.
type note struct {
	Kind    string     `json:"kind"`
	Card    *card      `json:"card,omitempty"`
	Windows [][]handle `json:"windows,omitempty"` // by lane
	Lane    int        `json:"lane,omitempty"`
	Report  *report    `json:"report,omitempty"`
	Words   []uint64   `json:"words,omitempty"`
}

const (
	noteCard   = "card"   // who I am
	noteReady  = "ready"  // you may send
	noteFailed = "failed" // my requests on a lane have failed
	noteDone   = "done"   // I have nothing more to send or to expect
	noteWords  = "words"  // what my shared words hold in the end
	noteBye    = "bye"    // you may take your queue pairs down
)

// card is what the peer must know to connect.
type card struct {
	GID   verbs.GID  `json:"gid"`
	Port  uint16     `json:"port,omitempty"` // where connections are asked for, if by the connection manager
	Words handle     `json:"words"`
	Lanes []laneCard `json:"lanes"`
}

type laneCard struct {
	QPN     verbs.QPN `json:"qpn"`
	Target  handle    `json:"target"`
	XRC     verbs.QPN `json:"xrc,omitempty"` // the QP that receives
	SRQNs   []uint32  `json:"srqns,omitempty"`
	Windows []handle  `json:"-"` // told when they are bound
}

// receiver is the QP that messages for the lane go to.
func (c *laneCard) receiver() verbs.QPN {
	if c.XRC != 0 {
		return c.XRC
	}
	return c.QPN
}

// handle is remote memory.
type handle struct {
	Addr uint64     `json:"addr"`
	RKey verbs.RKey `json:"rkey"`
}

func handleOf(mr verbs.MR) handle { return handle{mr.Addr(), mr.RKey()} }

// at is the byte at an offset.
func (h handle) at(off int) verbs.Remote {
	return verbs.Remote{Addr: h.Addr + uint64(off), RKey: h.RKey}
}

// report is what an end says of its own requests when they are over.
type report struct {
	Lanes []laneReport `json:"lanes"`
}

type laneReport struct {
	Good   int  `json:"good"`   // requests that completed, from the first on
	Failed bool `json:"failed"` // the rest were flushed
}

func (e *End) tell(n note) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return e.env.Peer.Send(b)
}

// hear returns the peer's next note; nil if none came in time.
func (e *End) hear(timeout time.Duration) (*note, error) {
	b, err := e.env.Peer.Recv(timeout)
	if errors.Is(err, verbs.ErrTimeout) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := new(note)
	if err := json.Unmarshal(b, n); err != nil {
		return nil, fmt.Errorf("note of the peer: %w", err)
	}
	return n, nil
}

// patience is how long to wait for the peer.
func (e *End) patience() time.Duration {
	if e.env.StallTimeout > 0 {
		return e.env.StallTimeout
	}
	return verbs.Forever
}

// expect waits for a note of one kind.
func (e *End) expect(kind string) (*note, error) {
	for {
		n, err := e.hear(e.patience())
		switch {
		case err != nil:
			return nil, err
		case n == nil:
			return nil, &StallError{After: e.env.StallTimeout, Status: e.Status() + "; waits for the peer to be " + kind}
		case n.Kind == kind:
			return n, nil
		}
		if err := e.heard(n); err != nil {
			return nil, err
		}
	}
}

// heard does what a note asks for that may come at any time.
func (e *End) heard(n *note) error {
	switch {
	case n.Kind == noteFailed && n.Lane >= 0 && n.Lane < len(e.lanes):
		return e.lanes[n.Lane].peerGaveUp()
	case n.Kind == noteDone && n.Report != nil && len(n.Report.Lanes) == len(e.lanes):
		e.peerDone = n.Report
		return nil
	}
	return fmt.Errorf("note %q of the peer while %s: do both ends run the same workload?", n.Kind, e.phase)
}
