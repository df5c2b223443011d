package random

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// controlMessage is a message of the Exchange.
type controlMessage struct {
	Kind    string           `json:"kind"`
	EndInfo *endInfo         `json:"info,omitempty"`
	Windows [][]remoteMemory `json:"windows,omitempty"` // by connection
	Conn    int              `json:"conn,omitempty"`
	Report  *report          `json:"report,omitempty"`
	Words   []uint64         `json:"words,omitempty"`
}

const (
	controlInfo   = "info"   // addresses, queue pairs and keys
	controlReady  = "ready"  // the peer may send
	controlFailed = "failed" // the requests of a connection have failed
	controlDone   = "done"   // nothing more to send or to receive
	controlWords  = "words"  // final values of the shared words
	controlClose  = "bye"    // the peer may destroy its queue pairs
)

// endInfo is what the peer needs to connect to this end.
type endInfo struct {
	GID   verbs.GID    `json:"gid"`
	Port  uint16       `json:"port,omitempty"` // of the connection manager
	Words remoteMemory `json:"words"`
	Conns []connInfo   `json:"conns"`
}

type connInfo struct {
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
	Conns []connReport `json:"conns"`
}

type connReport struct {
	Good   int  `json:"good"`   // requests that completed with success, from the first on
	Failed bool `json:"failed"` // the rest was flushed
}

// sendControl sends a control message to the peer.
func (e *End) sendControl(msg controlMessage) error {
	b, err := json.Marshal(msg)
	if err != nil {
		return err
	}
	return e.env.Peer.Send(b)
}

// receiveControl returns the next control message of the peer; nil after the timeout.
func (e *End) receiveControl(timeout time.Duration) (*controlMessage, error) {
	b, err := e.env.Peer.Recv(timeout)
	if errors.Is(err, verbs.ErrTimeout) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	msg := new(controlMessage)
	if err := json.Unmarshal(b, msg); err != nil {
		return nil, fmt.Errorf("control message of the peer: %w", err)
	}
	return msg, nil
}

// stallTimeout is how long to wait for the peer.
func (e *End) stallTimeout() time.Duration { return cmp.Or(e.env.StallTimeout, verbs.Forever) }

// expectControl handles control messages until one of the given kind arrives, and returns that one.
// It fails after the stall timeout.
func (e *End) expectControl(kind string) (*controlMessage, error) {
	for {
		msg, err := e.receiveControl(e.stallTimeout())
		switch {
		case err != nil:
			return nil, err
		case msg == nil:
			return nil, &traffic.StallError{After: e.env.StallTimeout, Status: e.Status() + "; waits for the control message " + kind}
		case msg.Kind == kind:
			return msg, nil
		}
		if err := e.handleControl(msg); err != nil {
			return nil, err
		}
	}
}

// handleControl handles a control message that may arrive at any time: that requests of the peer
// have failed, or that all have completed. Other messages are an error.
func (e *End) handleControl(msg *controlMessage) error {
	switch {
	case msg.Kind == controlFailed && msg.Conn >= 0 && msg.Conn < len(e.conns):
		return e.conns[msg.Conn].peerRequestsFailed()
	case msg.Kind == controlDone && msg.Report != nil && len(msg.Report.Conns) == len(e.conns):
		e.peerDone = msg.Report
		return nil
	}
	return fmt.Errorf("control message %q of the peer while %s: do both ends run the same workload?", msg.Kind, e.phase)
}
