package drive

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// RealStreams drives a StreamEngine in real time: a StreamDriver.
type RealStreams struct {
	*Real
	*Streams
}

var _ StreamDriver = (*RealStreams)(nil)

// NewRealStreams starts driving e on n, which has neither streams nor listeners
// yet. Time starts at start, which must be positive.
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

// streamNetwork is a network of byte streams.
type streamNetwork struct {
	*Streams
	waiter link.StreamWaiter
}

func (n *streamNetwork) takeIn(now mono.Time) (arrived, more bool) { return n.Receive(now) }

// leave has the next look come soon: the net does not name a stream again for
// what was left in it.
func (n *streamNetwork) leave() { n.waiter.Wake() }

func (n *streamNetwork) flush(now mono.Time) (bool, time.Duration) {
	all := n.Flush(now)
	if len(n.unread) > 0 { // a write has failed
		n.waiter.Wake()
	}
	if all {
		return false, -1
	}
	return false, 0
}

func (n *streamNetwork) wait(d time.Duration) error { return n.waiter.WaitReady(d) }
func (n *streamNetwork) wake()                      { n.waiter.Wake() }
