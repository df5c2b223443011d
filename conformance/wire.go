package conformance

import (
	"net/netip"
	"time"
)

// Wire is the peer's end of the device's cable. It carries whole IP packets, and the
// judge sets and sees every bit of them.
type Wire interface {
	// Send puts an IP packet on the wire. What is behind the length that its header
	// names is padding of the frame. A packet that the wire cannot carry as it is
	// (options, fragments in a simulated network) is an error that wraps ErrCannot,
	// and is not sent.
	Send(packet []byte) error
	// Recv returns the next packet that the device sent to whatever address, in the
	// order of the wire, or verbs.ErrTimeout.
	Recv(timeout time.Duration) (Frame, error)
	// Join has the wire deliver what the device sends to a multicast group. Where
	// everything is seen anyway it does nothing.
	Join(group netip.Addr) error
}

// Frame is a packet on the wire.
type Frame struct {
	// At is when it was seen.
	At time.Duration
	// Packet is the IP packet, from the first byte of its IP header to the last one
	// that came with it, padding of the frame included.
	Packet []byte
}

// Streams is the TCP of the raw peer.
type Streams interface {
	// Dial connects to the device.
	Dial(to netip.AddrPort, timeout time.Duration) (Stream, error)
	// Listen takes connections to the first of the peer's addresses. Port 0 is any.
	Listen(port uint16) (Listener, error)
}

// Listener takes what the device dials.
type Listener interface {
	Addr() netip.AddrPort
	// Accept returns the next stream, or verbs.ErrTimeout.
	Accept(timeout time.Duration) (Stream, error)
	Close() error
}

// Stream is a TCP connection with the device.
type Stream interface {
	Local() netip.AddrPort
	Remote() netip.AddrPort
	// MSS is the largest segment of the path.
	MSS() int
	// Write sends b, and at once: what two calls write goes in two segments, and what
	// one does in as few as the path allows.
	Write(b []byte) error
	// Read returns what has come next: some bytes, io.EOF when the device has closed
	// its side in order, ErrReset when it has broken the connection, or
	// verbs.ErrTimeout.
	Read(timeout time.Duration) ([]byte, error)
	// CloseWrite ends our side in order.
	CloseWrite() error
	// Reset breaks the connection.
	Reset() error
}
