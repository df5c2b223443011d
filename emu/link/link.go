// Package link defines the interfaces between a protocol stack and its network: PacketLink for
// datagrams, StreamNet for byte streams. Package sim implements them in virtual time, udplink and
// tcplink on sockets; pcaplink captures their traffic, and linktest tests implementations.
//
// Its only functions are for IP and UDP headers and checksums. The time is always an argument.
package link

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Explicit congestion notification code points, the low two bits of TClass.
const (
	NotECT = 0b00
	ECT1   = 0b01
	ECT0   = 0b10
	CE     = 0b11
	ECN    = 0b11 // mask
)

// IPIDUnknown is the IPID of a received datagram whose IPv4 identification the link cannot
// see. In a datagram to send it leaves the identification to the network.
const IPIDUnknown uint32 = 1 << 16

// ErrClosed is returned by every method of a closed link.
var ErrClosed = errors.New("link closed")

// Datagram is a UDP datagram with fields of its IP header.
type Datagram struct {
	Src, Dst netip.AddrPort
	// TClass is the IPv4 TOS or IPv6 traffic class byte: DSCP above, ECN below.
	TClass uint8
	// HopLimit is the IPv4 TTL or IPv6 hop limit; 0 means the link's default
	// when sending and not seen when receiving.
	HopLimit uint8
	// Variants are further differences from the packets of an ordinary socket. Links over
	// sockets choose them: Send and Recv set Variants to those of the packet, as far as they are known.
	Variants HeaderVariants
	// IPID is the IPv4 identification, which RoCEv2's ICRC covers, or IPIDUnknown. It has
	// no meaning over IPv6.
	IPID uint32
	// FlowLabel is the IPv6 flow label, 0 if not seen.
	FlowLabel uint32
	// Tag identifies a packet and its copies in captures of a simulated network. Links over
	// sockets ignore it.
	Tag uint32
	// Payload is the UDP payload. Send does not keep it; that of Recv is valid until the
	// next Recv on the link.
	Payload []byte
}

// HeaderVariants are differences of headers and frame from those of a socket, which sets
// don't-fragment and the UDP checksum.
type HeaderVariants uint8

// Header variants.
const (
	NoChecksum  HeaderVariants = 1 << iota // the UDP checksum is 0
	MayFragment                            // DF is clear
	Padded                                 // padding follows the packet in its frame
)

// ECNBits returns the datagram's ECN code point: NotECT, ECT0, ECT1 or CE.
func (d *Datagram) ECNBits() uint8 { return d.TClass & ECN }

// Features says which header fields a link can see and set.
type Features struct {
	// SeesIPID: received datagrams have their true identification.
	SeesIPID bool
	// SeesHeader: received datagrams have the TClass and HopLimit of the packet.
	SeesHeader bool
	// SetsIPID: datagrams are sent with the identification of Datagram.IPID. Otherwise the
	// link chooses, mostly 0.
	SetsIPID bool
	// SetsHeader: datagrams are sent with their TClass and HopLimit.
	SetsHeader bool
	// SrcPort is the only UDP source port of the link; 0 if it sends from Datagram.Src's port.
	SrcPort uint16
	// Deterministic: time and order follow from a seed.
	Deterministic bool
}

// PacketLink sends and receives datagrams without blocking. It is not safe for concurrent use.
type PacketLink interface {
	// Send sends datagrams in order and returns how many the link took. Fewer than all,
	// with a nil error, means that the link is full. A datagram that the network refuses
	// (no route, too big) counts as taken and is lost. A link without Features.SetsIPID
	// sets the IPID of datagrams that are sent with another identification than 0.
	Send(now mono.Time, ds []Datagram) (int, error)
	// Recv receives datagrams into ds and returns their number; 0 if none has arrived.
	Recv(now mono.Time, ds []Datagram) (int, error)
	// MTU is the largest IP packet, headers included, that the link carries.
	MTU() int
	Features() Features
	Close() error
}

// Waiter is a PacketLink in real time, on which a driver may block.
type Waiter interface {
	PacketLink
	// WaitReadable blocks until a datagram has arrived, d has passed (never if d is
	// negative), Wake is called or the link is closed. It may return early. One goroutine
	// at a time may call it, while another one sends and receives.
	WaitReadable(d time.Duration) error
	// Wake makes the current WaitReadable return, or else the next. Any goroutine may call it.
	Wake()
}

// InPlaceLink is a PacketLink that has memory in which packets are sent without a copy.
type InPlaceLink interface {
	PacketLink
	// SendBuffer returns memory for up to n packets of maxLen bytes that follow each other, or less or
	// nil if there is no more room. The first begins at the start of the buffer, and each other at
	// PlaceAfter the one before. Send takes them without a copy if they have the destination of the
	// packet before, else with one. Until then Send must not be called with other packets.
	SendBuffer(n, maxLen int) []byte
}

// placeAlign is the alignment of packets in a buffer of an InPlaceLink, and the size of the header
// that the link writes before each.
const placeAlign = 64

// PlaceAfter returns the offset of a packet in the buffer of an InPlaceLink from that of the packet
// before, which has n bytes.
func PlaceAfter(n int) int { return (n+placeAlign-1)&^(placeAlign-1) + placeAlign }

// GroupLink is a PacketLink that can join multicast groups. Joins are counted: the link
// leaves a group after as many Leave calls as Join calls.
type GroupLink interface {
	PacketLink
	Join(group netip.Addr) error
	Leave(group netip.Addr) error
}

// PortObserver is notified when a stack's port changes. A notification may repeat a known state.
type PortObserver interface {
	// LinkChanged says that the link is up or down.
	LinkChanged(up bool)
	// AddrChanged says that an address was removed from the port, or added again.
	AddrChanged(addr netip.Addr, present bool)
}

// Segment is a TCP segment of a capture.
type Segment struct {
	Src, Dst netip.AddrPort
	// Seq and Ack are relative sequence numbers: the SYN is 0, the first byte 1, and a FIN
	// counts as one byte.
	Seq, Ack uint64
	Flags    SegmentFlags
	Payload  []byte
}

// SegmentFlags are the flags of the TCP header, with its bit values.
type SegmentFlags uint8

// The flags.
const (
	FIN SegmentFlags = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Is4 reports whether the segment is sent over IPv4: its destination is an IPv4 address,
// perhaps mapped into IPv6.
func (s *Segment) Is4() bool { return s.Dst.Addr().Unmap().Is4() }

// IPBytes returns the length of the IP packet that carries the segment, without IP and TCP options.
func (s *Segment) IPBytes() int {
	if s.Is4() {
		return IPv4HeaderLen + TCPHeaderLen + len(s.Payload)
	}
	return IPv6HeaderLen + TCPHeaderLen + len(s.Payload)
}

// Header lengths without options.
const (
	IPv4HeaderLen = 20
	IPv6HeaderLen = 40
	UDPHeaderLen  = 8
	TCPHeaderLen  = 20
)

// Is4 reports whether the datagram is sent over IPv4: its destination is an IPv4 address,
// perhaps mapped into IPv6.
func (d *Datagram) Is4() bool { return d.Dst.Addr().Unmap().Is4() }

// IPBytes returns the length of the IP packet that carries the datagram.
func (d *Datagram) IPBytes() int {
	if d.Is4() {
		return IPv4HeaderLen + UDPHeaderLen + len(d.Payload)
	}
	return IPv6HeaderLen + UDPHeaderLen + len(d.Payload)
}
