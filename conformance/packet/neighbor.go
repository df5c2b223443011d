package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Types of neighbour discovery among the messages of ICMPv6.
const (
	NeighborSolicitation  = 135
	NeighborAdvertisement = 136
)

// Neighbor is a solicitation or an advertisement: the question for the Ethernet
// address of an IPv6 one, and its answer (RFC 4861, sections 4.3 and 4.4).
type Neighbor struct {
	Type                        uint8
	Router, Solicited, Override bool // of an advertisement
	Target                      netip.Addr
	// MAC is that of the sender in a solicitation, and of the target in an
	// advertisement. The zero address is not sent.
	MAC MAC
}

// SolicitedNode is the group to which the question for an address is sent.
func SolicitedNode(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// Append appends the IPv6 packet that carries n from src to dst.
func (n Neighbor) Append(b []byte, src, dst netip.Addr) []byte {
	m := []byte{n.Type, 0, 0, 0, 0, 0, 0, 0}
	for i, f := range []bool{n.Router, n.Solicited, n.Override} {
		if f {
			m[4] |= 0x80 >> i
		}
	}
	target := addr16(n.Target)
	m = append(m, target[:]...)
	if n.MAC != (MAC{}) {
		option := byte(1) // of the source
		if n.Type == NeighborAdvertisement {
			option = 2 // of the target
		}
		m = append(append(m, option, 1), n.MAC[:]...)
	}
	sum := Checksum(pseudoHeader(src, dst, ProtocolICMPv6, len(m)), m)
	binary.BigEndian.PutUint16(m[2:], sum)
	// A hop limit of 255 proves that no router has had it.
	h := IP{Src: src, Dst: dst, Protocol: new(uint8(ProtocolICMPv6)), HopLimit: new(uint8(255))}
	return h.Append(b, m)
}

// ErrNotNeighbor says that a packet is not about neighbour discovery.
var ErrNotNeighbor = errors.New("no neighbour discovery")

// ParseNeighbor reads the message in an IPv6 packet. It wraps [ErrNotNeighbor] for
// any other packet.
func ParseNeighbor(b []byte) (h IP, n Neighbor, err error) {
	h, m, _, err := ParseIP(b)
	if err != nil {
		return h, n, err
	}
	if !h.Is6() || *h.Protocol != ProtocolICMPv6 || len(m) == 0 || m[0] != NeighborSolicitation && m[0] != NeighborAdvertisement {
		return h, n, ErrNotNeighbor
	}
	switch {
	case len(m) < 24:
		return h, n, fmt.Errorf("neighbour discovery: %w: %d of 24 bytes", ErrShort, len(m))
	case Checksum(pseudoHeader(h.Src, h.Dst, ProtocolICMPv6, len(m)), m) != 0:
		return h, n, errors.New("neighbour discovery: wrong checksum")
	case *h.HopLimit != 255:
		return h, n, fmt.Errorf("neighbour discovery: hop limit %d, not 255", *h.HopLimit)
	}
	n = Neighbor{
		Type: m[0], Router: m[4]&0x80 != 0, Solicited: m[4]&0x40 != 0, Override: m[4]&0x20 != 0,
		Target: netip.AddrFrom16([16]byte(m[8:])),
	}
	for o := m[24:]; len(o) >= 8; {
		size := 8 * int(o[1])
		if size == 0 || size > len(o) {
			return h, n, fmt.Errorf("neighbour discovery: option of %d bytes where %d are left", size, len(o))
		}
		if o[0] == 1 || o[0] == 2 {
			n.MAC = MAC(o[2:])
		}
		o = o[size:]
	}
	return h, n, nil
}

// Answer returns the packet that answers the solicitation n, which came from h.Src:
// that its target is at mac.
func (n Neighbor) Answer(b []byte, h IP, mac MAC) []byte {
	a := Neighbor{Type: NeighborAdvertisement, Solicited: true, Override: true, Target: n.Target, MAC: mac}
	dst := h.Src
	if !dst.IsValid() || dst.IsUnspecified() { // it looks for its own address: tell all nodes
		a.Solicited, dst = false, netip.IPv6LinkLocalAllNodes()
	}
	return a.Append(b, n.Target, dst)
}
