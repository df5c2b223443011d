package drive

import (
	"net/netip"

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

// StreamConn is an engine's end of one stream. The driver uses it from Dial or accept
// until Failed, StreamAbort, or the end of both directions. It must be comparable, as
// a pointer is.
type StreamConn interface {
	// Connected says that the stream is established. Either Connected or Failed is
	// the first call.
	Connected(now mono.Time, local, remote netip.AddrPort, mss int)
	// Failed says that the stream could not be established, or has broken:
	// link.ErrReset, link.ErrRefused or link.ErrUnreachable, perhaps wrapped. It is
	// the last call.
	Failed(now mono.Time, err error)
	// Input processes received bytes, all of them. b is valid during the call.
	Input(now mono.Time, b []byte)
	// InputEOF says that the peer has closed its direction.
	InputEOF(now mono.Time)
	// Output appends the bytes to write next to into, without growing it, and says how
	// the stream goes on after them: StreamOpen, StreamClose (nothing follows) or
	// StreamAbort (bufs is ignored). Until Sent reports them, Output returns the same
	// bytes again, from the first that was not sent. The driver borrows them until then.
	Output(into [][]byte) (bufs [][]byte, then StreamEnd)
	// Sent says that the stream took n more of the bytes that Output returned. The
	// driver calls it before the next Output.
	Sent(now mono.Time, n int)
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
	// Dial starts a stream for conn, whose Connected or Failed is called later. After
	// an error neither is.
	Dial(conn StreamConn, local, remote netip.AddrPort) error
	// Listen accepts streams to addr. accept returns the conn of each, whose Connected
	// is called next; nil rejects the stream. Up to backlog streams may wait to be
	// accepted.
	Listen(addr netip.AddrPort, backlog int, accept func(remote netip.AddrPort) StreamConn) (StreamListener, error)
}

// StreamListener accepts streams for a StreamDriver. Close does not affect streams
// that were accepted.
type StreamListener interface {
	Addr() netip.AddrPort
	Close() error
}
