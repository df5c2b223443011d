package drive

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// StreamEngine is an engine whose network is byte streams. As with Engine, all
// of it is called under the driver's lock, and none of it calls the driver.
type StreamEngine interface {
	// Settle hands on what inputs and calls have caused: events, completions.
	Settle(now mono.Time)
	Tick(now mono.Time)
	Deadline() mono.Time
	// NextOutput returns the next connection that may have come to have something
	// to write, or to end, since it was returned last. The driver asks its Output
	// at once, and again whenever the stream can take more.
	NextOutput() (StreamConn, bool)
}

// StreamConn is an engine's end of one stream, from Dial or accept until
// Failed, StreamAbort, or the end of both directions. Then the driver has
// forgotten it. It must be comparable, as a pointer is.
type StreamConn interface {
	// Connected is the first that a conn hears, if it does not hear Failed.
	Connected(now mono.Time, local, remote netip.AddrPort, mss int)
	// Failed says that the stream could not be made, or has broken: link.ErrReset,
	// link.ErrRefused or link.ErrUnreachable, perhaps wrapped. It is the last that
	// a conn hears.
	Failed(now mono.Time, err error)
	// Input gives bytes that have arrived. All are taken; b is the driver's again
	// when Input returns.
	Input(now mono.Time, b []byte)
	// InputEOF says that the peer has ended its direction in order.
	InputEOF(now mono.Time)
	// Output appends to into what is to be written next, without growing it, and
	// says what becomes of the stream behind that: link.StreamOpen, StreamClose
	// (nothing is written after that) or StreamAbort (bufs do not matter). Until
	// Sent says that it was taken, Output gives the same again, from the first
	// byte that was not. The bytes are borrowed for as long.
	Output(into [][]byte) (bufs [][]byte, then StreamEnd)
	// Sent says that the stream took n more bytes of what Output gave. It is said
	// before Output is asked again.
	Sent(now mono.Time, n int)
}

// StreamEnd is how a stream goes on behind what is to be written.
type StreamEnd = link.StreamEnd

// The ends, by their names in package link.
const (
	StreamOpen  = link.StreamOpen
	StreamClose = link.StreamClose
	StreamAbort = link.StreamAbort
)

// StreamDriver is a Driver whose engine's network is byte streams. Dial, Listen
// and what they return are for use with the lock held.
type StreamDriver interface {
	Driver
	// Dial starts a stream for conn, which hears Connected or Failed later. An
	// error here means that there is nothing to hear of.
	Dial(conn StreamConn, local, remote netip.AddrPort) error
	// Listen takes the streams that are dialed to addr. accept gives each its conn,
	// whose Connected is called next; nil turns the stream away. Up to backlog
	// streams may wait where they come in faster than they are taken.
	Listen(addr netip.AddrPort, backlog int, accept func(remote netip.AddrPort) StreamConn) (StreamListener, error)
}

// StreamListener is where a StreamDriver takes streams in. Closing it leaves
// those that were accepted alone.
type StreamListener interface {
	Addr() netip.AddrPort
	Close() error
}
