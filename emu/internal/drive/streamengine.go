package drive

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// StreamEngine is a protocol engine on byte streams. The driver calls it under its
// lock, and the engine does not call the driver.
type StreamEngine interface {
	// Settle delivers the events and completions that inputs and calls have caused.
	Settle(now mono.Time)
	// Tick handles the timers that have expired by now.
	Tick(now mono.Time)
	// Deadline is when Tick must be called next.
	Deadline() mono.Time
	// NextOutput returns the next connection that may have something to write, or to
	// close, since it was returned last. The driver then calls its Output, and calls
	// it again whenever the stream has room.
	NextOutput() (StreamConn, bool)
}

// StreamConn is an engine's end of one stream. The driver uses it from Dial or accept until Failed,
// StreamAbort, or the end of both directions. It must be comparable.
type StreamConn interface {
	// Connected says that the stream is established. Either Connected or Failed is the first call.
	Connected(now mono.Time, local, remote netip.AddrPort, mss int)
	// Failed is the last call: the stream was not established, or broke. err is link.ErrReset,
	// link.ErrRefused or link.ErrUnreachable, perhaps wrapped.
	Failed(now mono.Time, err error)
	// Input processes received bytes, all of them. b is valid during the call.
	Input(now mono.Time, b []byte)
	// InputEOF says that the peer has closed its direction.
	InputEOF(now mono.Time)
	// Output appends the bytes to write next to into, without growing it, and says how
	// the stream goes on after them: StreamOpen, StreamClose (nothing follows) or
	// StreamAbort (bufs is ignored). Until Sent reports them, Output returns the same
	// bytes again, from the first that was not sent. The driver borrows them until then.
	Output(into [][]byte) (bufs [][]byte, end StreamEnd)
	// Sent says that the stream took n more of the bytes that Output returned, and when the host has
	// accepted them (link.StreamLink.AcceptedAt). The driver calls it before the next Output.
	Sent(now mono.Time, n int, accepted mono.Time)
}

// StreamEnd says how a stream goes on after the bytes to write.
type StreamEnd = link.StreamEnd

// The values of StreamEnd.
const (
	StreamOpen  = link.StreamOpen
	StreamClose = link.StreamClose
	StreamAbort = link.StreamAbort
)

// StreamDriver is a Driver of a StreamEngine. Dial, Listen and the methods of
// listeners are called with the lock held.
type StreamDriver interface {
	Driver
	// Dial starts a stream for conn. If it succeeds, Connected or Failed is called later.
	Dial(conn StreamConn, local, remote netip.AddrPort) error
	// Listen accepts streams to addr. accept returns the conn of each, whose Connected is called
	// next; nil rejects the stream. Up to backlog streams may wait.
	Listen(addr netip.AddrPort, backlog int, accept func(remote netip.AddrPort) StreamConn) (StreamListener, error)
}

// StreamListener accepts streams for a StreamDriver. Close does not affect accepted streams.
type StreamListener interface {
	Addr() netip.AddrPort
	Close() error
}

// RealStreams is a StreamDriver in real time.
type RealStreams struct {
	*Real
	*Streams
}

var _ StreamDriver = (*RealStreams)(nil)

// NewRealStreams starts a driver, which runs the engine e on the streams of n. n must have no
// streams or listeners yet. The driver's clock begins at start, which must be positive.
func NewRealStreams(e StreamEngine, n link.StreamWaiter, start mono.Time) *RealStreams {
	s := NewStreams(e, n)
	r := &RealStreams{Real: newReal(e, &streamNetwork{s, n}, start), Streams: s}
	go r.runInBackground()
	return r
}

// Dial implements StreamDriver.
func (r *RealStreams) Dial(conn StreamConn, local, remote netip.AddrPort) error {
	return r.Streams.Dial(r.Now(), conn, local, remote)
}

// streamNetwork is the network of a StreamEngine: byte streams.
type streamNetwork struct {
	*Streams
	waiter link.StreamWaiter
}

func (n *streamNetwork) receive(now mono.Time) (received, more bool) { return n.Receive(now) }

// wakeNextWait implements network: StreamNet.Ready does not name a stream twice for unread bytes.
func (n *streamNetwork) wakeNextWait() { n.waiter.Wake() }

// flush implements network. If a stream has more to write than its share of one call (writeBytes),
// retryAfter is 0: the driver flushes again after it has received. more is always false, because
// with true the driver would flush again at once.
func (n *streamNetwork) flush(now mono.Time) (more bool, retryAfter time.Duration) {
	allWritten := n.Flush(now)
	if len(n.readQueue) > 0 { // a write has failed, and a read returns its error
		n.waiter.Wake()
	}
	if allWritten {
		return false, -1 // no retry
	}
	return false, 0
}

func (n *streamNetwork) wait(d time.Duration) error { return n.waiter.WaitReady(d) }
func (n *streamNetwork) wake()                      { n.waiter.Wake() }
