package conformance

import (
	"net/netip"
	"time"
)

// Wire is the scripted peer's end of the device's link. It carries whole IP packets.
type Wire interface {
	// Send sends an IP packet. Bytes after the length in its header are padding of the
	// frame. If the wire cannot send the packet unchanged (IP options or fragments in
	// the simulator), it sends nothing and returns an error that wraps ErrBenchCannot.
	Send(packet []byte) error
	// Recv returns the next packet that the device sent, to any address and in the
	// order of the wire, or verbs.ErrTimeout.
	Recv(timeout time.Duration) (Frame, error)
	// Join makes the wire receive packets to a multicast group. Wires that receive
	// every packet do nothing.
	Join(group netip.Addr) error
}

// Frame is a packet that was received.
type Frame struct {
	// At is the time of reception.
	At time.Duration
	// Packet is the IP packet, from its header on, with the padding of the frame.
	Packet []byte
}

// Streams is the TCP of the scripted peer.
type Streams interface {
	// Dial connects to the device.
	Dial(to netip.AddrPort, timeout time.Duration) (Stream, error)
	// Listen listens on the first of the peer's addresses. Port 0 chooses a free port.
	Listen(port uint16) (Listener, error)
}

// Listener accepts connections from the device.
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
	// Write sends b without delay: in as few segments as the MSS allows, and never in
	// one segment with another call's data.
	Write(b []byte) error
	// Read returns the next received bytes, io.EOF after the device's FIN, ErrReset
	// after its RST, or verbs.ErrTimeout.
	Read(timeout time.Duration) ([]byte, error)
	// CloseWrite sends FIN.
	CloseWrite() error
	// Reset sends RST.
	Reset() error
}

// RawTCP is a TCP implementation whose segments a case controls. Its connections are
// [RawStream] values; their Read returns the payload of one segment at a time.
type RawTCP interface {
	Streams
	// SetOptions sets the options of connections made from now on.
	SetOptions(TCPOptions)
}

// TCPOptions are the options of the peer's connections.
type TCPOptions struct {
	// ISN is the initial sequence number, that of the peer's SYN; random if nil.
	ISN *uint32
	// MSS is the maximum segment size that the peer announces; that of the link if 0.
	MSS int
}

// RawStream is a TCP connection whose segments a case controls.
type RawStream interface {
	Stream
	// Hold appends b to the send buffer and sends none of it; SendHeld does. Octets
	// written later are sent after the gap.
	Hold(b []byte) error
	// SendHeld sends octets from..to of the held data as one segment. The case may send
	// ranges in any order and repeatedly. Once every octet was sent, the held data is
	// retransmitted after losses like written data.
	SendHeld(from, to int) error
	// SendHeldFIN sends the held data from an octet on, with FIN in the same segment.
	// Nothing may have been written after Hold.
	SendHeldFIN(from int) error
}
