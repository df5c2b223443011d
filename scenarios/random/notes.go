package random

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// note is a message of the Exchange.
type note struct {
	Kind     string           `json:"kind"`
	ConnInfo *connInfo        `json:"card,omitempty"`
	Windows  [][]remoteMemory `json:"windows,omitempty"` // by lane
	Lane     int              `json:"lane,omitempty"`
	Report   *report          `json:"report,omitempty"`
	Words    []uint64         `json:"words,omitempty"`
}

const (
	noteConnInfo = "card"   // addresses, queue pairs and keys
	noteReady    = "ready"  // the peer may send
	noteFailed   = "failed" // the requests of a lane have failed
	noteDone     = "done"   // nothing more to send or to receive
	noteWords    = "words"  // final values of the shared words
	noteClose    = "bye"    // the peer may destroy its queue pairs
)

// connInfo is what the peer needs to connect.
type connInfo struct {
	GID   verbs.GID    `json:"gid"`
	Port  uint16       `json:"port,omitempty"` // of the connection manager
	Words remoteMemory `json:"words"`
	Lanes []laneInfo   `json:"lanes"`
}

type laneInfo struct {
	traffic.QPNumbers
	Target  remoteMemory   `json:"target"`
	SRQNs   []uint32       `json:"srqns,omitempty"`
	Windows []remoteMemory `json:"-"` // sent after they are bound
}

// remoteMemory is the address and key of memory of the peer.
type remoteMemory struct {
	Addr uint64     `json:"addr"`
	RKey verbs.RKey `json:"rkey"`
}

func remoteMemoryOf(mr verbs.MR) remoteMemory { return remoteMemory{mr.Addr(), mr.RKey()} }

// atOffset returns the memory from an offset on.
func (h remoteMemory) atOffset(off int) verbs.Remote {
	return verbs.Remote{Addr: h.Addr + uint64(off), RKey: h.RKey}
}

// report is the result of an end's requests.
type report struct {
	Lanes []laneReport `json:"lanes"`
}

type laneReport struct {
	Good   int  `json:"good"`   // requests that completed with success, from the first on
	Failed bool `json:"failed"` // the rest was flushed
}

// sendNote sends a note to the peer.
func (e *End) sendNote(n note) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return e.env.Peer.Send(b)
}

// receiveNote returns the next note of the peer; nil after the timeout.
func (e *End) receiveNote(timeout time.Duration) (*note, error) {
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

// stallTimeout is how long to wait for the peer.
func (e *End) stallTimeout() time.Duration {
	if e.env.StallTimeout > 0 {
		return e.env.StallTimeout
	}
	return verbs.Forever
}

// expectNote waits for a note of one kind, and handles others.
func (e *End) expectNote(kind string) (*note, error) {
	for {
		n, err := e.receiveNote(e.stallTimeout())
		switch {
		case err != nil:
			return nil, err
		case n == nil:
			return nil, &traffic.StallError{After: e.env.StallTimeout, Status: e.Status() + "; waits for the peer to be " + kind}
		case n.Kind == kind:
			return n, nil
		}
		if err := e.handleNote(n); err != nil {
			return nil, err
		}
	}
}

// handleNote handles a note that may arrive at any time.
func (e *End) handleNote(n *note) error {
	switch {
	case n.Kind == noteFailed && n.Lane >= 0 && n.Lane < len(e.lanes):
		return e.lanes[n.Lane].peerRequestsFailed()
	case n.Kind == noteDone && n.Report != nil && len(n.Report.Lanes) == len(e.lanes):
		e.peerDone = n.Report
		return nil
	}
	return fmt.Errorf("note %q of the peer while %s: do both ends run the same workload?", n.Kind, e.phase)
}
