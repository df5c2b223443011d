package link

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Errors of streams. A stream over a real socket wraps one of them around what
// the kernel said.
var (
	// ErrReset is what a stream returns after either end aborted it, or the
	// network between them gave up.
	ErrReset = errors.New("stream reset")
	// ErrRefused is what a dialed stream returns when nobody listened.
	ErrRefused = errors.New("stream refused: nobody listens there")
	// ErrUnreachable is what dialing an address that the network does not lead to
	// returns.
	ErrUnreachable = errors.New("address unreachable")
	// ErrWriteClosed is what a write after CloseWrite returns.
	ErrWriteClosed = errors.New("write after CloseWrite")
	// ErrAddrInUse is what listening where somebody listens already returns, and
	// dialing from where a stream to the same peer exists.
	ErrAddrInUse = errors.New("address in use")
	// ErrLimit is what a StreamNet returns that has as many streams or listeners
	// open as it may.
	ErrLimit = errors.New("too many open")
)

// StreamID names a stream or a listener in its StreamNet while it is open: a
// small number, from 1 on, that is given to another once it is free.
type StreamID uint32

// StreamNet makes and takes byte streams, as a host's TCP does. Its methods do
// not block, and it is not safe for concurrent use, and neither are its streams
// and listeners: their driver owns them.
type StreamNet interface {
	// Dial starts a stream. Port 0 in local means any; an unspecified address
	// there (of the family of remote) leaves the choice to the network. The
	// stream is Connected later, or its Read says why it is not.
	Dial(now mono.Time, local, remote netip.AddrPort) (StreamLink, error)
	// Listen takes streams that are dialed to addr. Port 0 means any, an
	// unspecified address all that the host has in that family. Up to backlog
	// streams may wait to be accepted.
	Listen(addr netip.AddrPort, backlog int) (StreamListener, error)
	// Ready fills ready with streams and listeners that are worth a look, and
	// reports how many it filled. One is named when something has happened to it
	// since it was named last; some may be named for nothing. A stream from which
	// Read filled the whole buffer need not be named again for what is left, so
	// that whoever stops there has to remember it.
	Ready(ready []StreamReady) int
	// Close closes the listeners and aborts the streams but those whose end was
	// closed by CloseWrite: what was written to these still arrives.
	Close() error
}

// StreamReady says what there may be to do for a stream or a listener.
type StreamReady struct {
	ID StreamID
	// Readable: bytes, the end of the stream or its failure have arrived; for a
	// listener, somebody has dialed.
	Readable bool
	// Writable: the stream is connected, or has room again, or has failed.
	Writable bool
}

// StreamWaiter is a StreamNet over a real device, on which a driver may sleep.
type StreamWaiter interface {
	StreamNet
	// WaitReady blocks until Ready has something to name that it has not named
	// yet, d has passed (forever if d is negative), Wake is called or the net is
	// closed. It may return early. One goroutine at a time may be in it, while
	// another, the driver's of the moment, uses the net.
	WaitReady(d time.Duration) error
	// Wake ends a WaitReady under way, or the next one if there is none. It is
	// safe to call from any goroutine.
	Wake()
}

// StreamListener takes streams that are dialed to its address.
type StreamListener interface {
	ID() StreamID
	// Addr is the address listened on, with the port that was got.
	Addr() netip.AddrPort
	// Accept returns the next stream, which is connected; nil if none waits.
	Accept(now mono.Time) (StreamLink, error)
	// Close stops listening. Streams that nobody has accepted are aborted.
	Close() error
}

// StreamLink is one end of a byte stream, as a TCP connection is. Its methods
// do not block. It has nothing to close: a stream that has ended in both
// directions, was aborted or has failed, and said so, holds nothing any more.
type StreamLink interface {
	ID() StreamID
	// Connected reports whether the stream is, or has been, connected.
	Connected(now mono.Time) bool
	// Write takes a prefix of b and reports its length; less than all, with a
	// nil error, means that the stream is full, or not connected yet.
	Write(now mono.Time, b []byte) (int, error)
	// Writev is Write of bufs one behind the other. Where more is set the next
	// write follows at once, so that a segment which is not full may wait for it;
	// a Writev of nothing without more ends such a wait.
	Writev(now mono.Time, bufs [][]byte, more bool) (int, error)
	// Read fills b with what has arrived; 0 with a nil error means nothing is
	// waiting, io.EOF that the peer closed its side in order. Any other error
	// means that the stream is broken: errors.Is tells ErrReset, ErrRefused and
	// ErrUnreachable. What arrived before can be read before.
	Read(now mono.Time, b []byte) (int, error)
	// CloseWrite ends our direction after what was written (FIN).
	CloseWrite(now mono.Time) error
	// Abort breaks the stream in both directions at once (RST).
	Abort(now mono.Time) error
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	// MSS is the largest segment that the path carries without being cut. It is
	// known once the stream is connected.
	MSS() int
}

// StreamEnd is what is to become of our direction of a stream.
type StreamEnd uint8

// How a stream goes on behind what is to be written.
const (
	StreamOpen  StreamEnd = iota // more may follow
	StreamClose                  // our direction ends in order (FIN)
	StreamAbort                  // both break at once (RST), and nothing more is written
)
