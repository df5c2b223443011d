// Package link is the seam between a stack and its network. A stack sees
// datagrams or bytes; whether they cross a simulated wire, a UDP socket or an
// AF_PACKET ring is the link's affair.
//
// The package holds value types and interfaces, and a fake beside them. It
// opens nothing and keeps no time: now is an argument, as everywhere below.
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

// IPIDUnknown marks a datagram whose IPv4 identification the link cannot see
// (on receive) or leaves to the network (on send).
const IPIDUnknown uint32 = 1 << 16

// ErrClosed is returned by every method of a closed link.
var ErrClosed = errors.New("link closed")

// Datagram is one UDP datagram and what its network header said about it.
type Datagram struct {
	Src, Dst netip.AddrPort
	// TClass is the IPv4 TOS or IPv6 traffic class byte: DSCP above, ECN below.
	TClass uint8
	// HopLimit is the IPv4 TTL or IPv6 hop limit; 0 means the link's default
	// when sending and not seen when receiving.
	HopLimit uint8
	// Unlike says what else is not as in the packets of an ordinary socket. Links
	// over sockets neither see nor set it.
	Variants HeaderVariants
	// IPID is the IPv4 identification field. RoCEv2's ICRC covers it, so a link
	// that cannot see it says so with IPIDUnknown rather than guess. It has no
	// meaning over IPv6.
	IPID uint32
	// FlowLabel is the IPv6 flow label, 0 if not seen.
	FlowLabel uint32
	// Tag identifies a packet and its copies in a simulated network that is tapped.
	// Links over sockets ignore it.
	Tag uint32
	// Payload is the UDP payload. Sending, it belongs to the caller again when
	// Send returns; receiving, it is valid until the next Recv on the link.
	Payload []byte
}

// HeaderVariants is how a datagram's headers, and its frame, differ from those that a
// socket makes, which forbids fragmentation and fills in the checksum.
type HeaderVariants uint8

// The differences.
const (
	NoChecksum  HeaderVariants = 1 << iota // the UDP checksum is left out
	MayFragment                            // DF is clear
	Padded                                 // bytes that are not the packet's follow it in its frame
)

// ECNBits returns the datagram's ECN code point.
func (d *Datagram) ECNBits() uint8 { return d.TClass & ECN }

// Features says what a link can see and set, so that nobody claims to have
// checked what was never visible.
type Features struct {
	// SeesIPID is set where received datagrams carry their true identification.
	SeesIPID bool
	// SeesHeader is set where received TClass and HopLimit are those of the
	// packet, not defaults.
	SeesHeader bool
	// SetsIPID is set where a sent datagram leaves with the identification that
	// Datagram.IPID names; otherwise the link chooses, 0 in most cases.
	SetsIPID bool
	// SetsHeader is set where TClass and HopLimit of sent datagrams are honoured.
	SetsHeader bool
	// SrcPort is the only UDP source port the link can send from; 0 where it
	// sends from whatever port Datagram.Src names.
	SrcPort uint16
	// Deterministic is set where time and order follow from a seed.
	Deterministic bool
}

// PacketLink moves datagrams. Its methods do not block, and it is not safe for
// concurrent use: its driver owns it.
type PacketLink interface {
	// Send hands over up to len(ds) datagrams, in order, and reports how many
	// the link took. Fewer than all, with a nil error, means that the link is
	// full: offer the rest again later. A datagram that the network refuses
	// (no route, too big) counts as taken, and as lost. A link without
	// Features.SetsIPID sets IPID of a datagram that left with another
	// identification than 0, and leaves the others at IPIDUnknown.
	Send(now mono.Time, ds []Datagram) (int, error)
	// Recv fills ds and reports how many it filled; 0 means none are waiting.
	Recv(now mono.Time, ds []Datagram) (int, error)
	// MTU is the largest IP packet, headers included, that the link carries.
	MTU() int
	Features() Features
	Close() error
}

// Waiter is a PacketLink over a real device, on which a driver may sleep.
type Waiter interface {
	PacketLink
	// WaitReadable blocks until a datagram waits, d has passed (forever if d is
	// negative), Wake is called or the link is closed. It may return early. One
	// goroutine at a time may be in it, while another, the driver's of the
	// moment, sends and receives.
	WaitReadable(d time.Duration) error
	// Wake ends a WaitReadable under way, or the next one if there is none. It
	// is safe to call from any goroutine.
	Wake()
}

// GroupLink is a PacketLink that can also receive for multicast groups. Joins
// are counted: a group is left when as many Leave as Join calls were made.
type GroupLink interface {
	PacketLink
	Join(group netip.Addr) error
	Leave(group netip.Addr) error
}
