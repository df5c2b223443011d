package drive

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// RealStreams is a StreamDriver in real time.
type RealStreams struct {
	*Real
	*Streams
}

var _ StreamDriver = (*RealStreams)(nil)

// NewRealStreams starts a driver of e on n, which must have no streams or
// listeners yet. Time starts at start, which must be positive.
func NewRealStreams(e StreamEngine, n link.StreamWaiter, start mono.Time) *RealStreams {
	s := NewStreams(e, n)
	r := &RealStreams{Real: newReal(e, &streamNetwork{s, n}, start), Streams: s}
	go r.background()
	return r
}

// Dial starts a stream for conn.
func (r *RealStreams) Dial(conn StreamConn, local, remote netip.AddrPort) error {
	return r.Streams.Dial(r.Now(), conn, local, remote)
}

// streamNetwork is the network of a StreamEngine: byte streams.
type streamNetwork struct {
	*Streams
	waiter link.StreamWaiter
}

func (n *streamNetwork) receive(now mono.Time) (received, more bool) { return n.Receive(now) }

// stopReceiving wakes the waiter: StreamNet.Ready does not name a stream again
// for bytes that were left unread.
func (n *streamNetwork) stopReceiving() { n.waiter.Wake() }

func (n *streamNetwork) flush(now mono.Time) (bool, time.Duration) {
	all := n.Flush(now)
	if len(n.readQueue) > 0 { // a write has failed, and a read tells why
		n.waiter.Wake()
	}
	if all {
		return false, -1
	}
	return false, 0
}

func (n *streamNetwork) wait(d time.Duration) error { return n.waiter.WaitReady(d) }
func (n *streamNetwork) wake()                      { n.waiter.Wake() }
