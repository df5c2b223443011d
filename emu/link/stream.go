package link

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Errors of streams. Streams over sockets wrap the error of the kernel with them.
var (
	// ErrReset: one of the ends aborted the stream, or TCP gave up.
	ErrReset = errors.New("stream reset")
	// ErrRefused: no listener accepted the stream.
	ErrRefused = errors.New("stream refused: no listener at the address")
	// ErrUnreachable: there is no route to the address.
	ErrUnreachable = errors.New("address unreachable")
	// ErrWriteClosed: CloseWrite was called before.
	ErrWriteClosed = errors.New("write after CloseWrite")
	// ErrAddrInUse: another listener has the address, or another stream the pair of addresses.
	ErrAddrInUse = errors.New("address in use")
	// ErrLimit: too many streams or listeners are open.
	ErrLimit = errors.New("too many open")
)

// StreamID identifies an open stream or listener of a StreamNet: a small number, from 1
// on, which is reused.
type StreamID uint32

// StreamNet dials and accepts byte streams, as the TCP of a host. Its methods do not
// block. The net, its streams and its listeners are not safe for concurrent use.
type StreamNet interface {
	// Dial starts a stream. The network chooses a local port if it is 0, and a local
	// address if it is unspecified (of the family of remote). The stream is Connected
	// later, or its Read returns the reason why not.
	Dial(now mono.Time, local, remote netip.AddrPort) (StreamLink, error)
	// Listen accepts streams to addr. Port 0 means any port, an unspecified address all
	// addresses of the host in that family. Up to backlog streams may wait to be accepted.
	Listen(addr netip.AddrPort, backlog int) (StreamListener, error)
	// Ready fills ready with streams and listeners that may be readable or writable, and
	// returns their number. Each is reported once per event (edge-triggered), sometimes
	// without an event. After a Read that filled its buffer the caller has to read again:
	// Ready need not report the rest.
	Ready(ready []StreamReady) int
	// Close closes the listeners and aborts the streams, except those after CloseWrite,
	// whose written bytes still arrive.
	Close() error
}

// StreamReady is the readiness of a stream or a listener.
type StreamReady struct {
	ID StreamID
	// Readable: bytes, EOF or an error can be read, or a stream can be accepted.
	Readable bool
	// Writable: the stream is connected, has room again, or has failed.
	Writable bool
}

// StreamWaiter is a StreamNet in real time, on which a driver may block.
type StreamWaiter interface {
	StreamNet
	// WaitReady blocks until Ready has something new to report, d has passed (never if d is
	// negative), Wake is called or the net is closed. It may return early. One goroutine at
	// a time may call it, while another one uses the net.
	WaitReady(d time.Duration) error
	// Wake makes the current WaitReady return, or else the next. Any goroutine may call it.
	Wake()
}

// StreamListener accepts streams.
type StreamListener interface {
	ID() StreamID
	// Addr is the bound address.
	Addr() netip.AddrPort
	// Accept returns the next connected stream; nil if there is none.
	Accept(now mono.Time) (StreamLink, error)
	// Close stops listening, and aborts streams that were not accepted.
	Close() error
}

// StreamLink is one end of a byte stream, such as a TCP connection. Its methods do not
// block. There is no Close: a stream frees its resources when both directions have ended,
// after Abort, or when Read has returned its error.
type StreamLink interface {
	ID() StreamID
	// Connected reports whether the stream is or was connected.
	Connected(now mono.Time) bool
	// Write writes a prefix of b and returns its length. Less than all, with a nil error,
	// means that the stream is full or not connected yet.
	Write(now mono.Time, b []byte) (int, error)
	// Writev writes the concatenation of bufs. If more is set, an incomplete segment may wait
	// for the next write; an empty Writev without more sends it.
	Writev(now mono.Time, bufs [][]byte, more bool) (int, error)
	// AcceptedAt returns when the host has taken over all written bytes: work requests complete
	// then. It is later than the write if that takes simulated time.
	AcceptedAt() mono.Time
	// Read reads received bytes into b; 0 with a nil error means that there are none. After all
	// received bytes, it returns io.EOF if the peer closed its direction, else the error that broke
	// the stream: ErrReset, ErrRefused or ErrUnreachable, perhaps wrapped.
	Read(now mono.Time, b []byte) (int, error)
	// CloseWrite closes the sending direction after the written bytes (FIN).
	CloseWrite(now mono.Time) error
	// Abort resets the stream (RST).
	Abort(now mono.Time) error
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	// MSS is the maximum segment size of a connected stream.
	MSS() int
}

// StreamEnd says how the sending direction of a stream goes on after the bytes to write.
type StreamEnd uint8

// The values of StreamEnd.
const (
	StreamOpen  StreamEnd = iota // more may follow
	StreamClose                  // the direction is closed (FIN)
	StreamAbort                  // the stream is reset (RST), without the bytes to write
)
