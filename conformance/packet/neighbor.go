package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// ICMPv6 types of neighbour discovery.
const (
	NeighborSolicitation  = 135
	NeighborAdvertisement = 136
)

// Neighbor is a neighbour solicitation or advertisement (RFC 4861, 4.3 and 4.4).
type Neighbor struct {
	Type                        uint8
	Router, Solicited, Override bool // of an advertisement
	Target                      netip.Addr
	// MAC is the link-layer address option: the sender's in a solicitation, the
	// target's in an advertisement. The zero address is not sent.
	MAC MAC
}

// SolicitedNode returns the solicited-node multicast address of an address.
func SolicitedNode(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// Append appends an IPv6 packet with the message.
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
		option := byte(1) // source link-layer address
		if n.Type == NeighborAdvertisement {
			option = 2 // target link-layer address
		}
		m = append(append(m, option, 1), n.MAC[:]...)
	}
	sum := Checksum(pseudoHeader(src, dst, ProtocolICMPv6, len(m)), m)
	binary.BigEndian.PutUint16(m[2:], sum)
	// The hop limit must be 255, which shows that no router forwarded the packet.
	h := IP{Src: src, Dst: dst, Protocol: new(uint8(ProtocolICMPv6)), HopLimit: new(uint8(255))}
	return h.Append(b, m)
}

// ErrNotNeighbor is the error of a packet without neighbour discovery.
var ErrNotNeighbor = errors.New("no neighbour discovery")

// ParseNeighbor parses the message of an IPv6 packet. It wraps [ErrNotNeighbor] for any
// other packet.
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

// Answer appends the packet that answers solicitation n from h.Src: the target is at mac.
func (n Neighbor) Answer(b []byte, h IP, mac MAC) []byte {
	a := Neighbor{Type: NeighborAdvertisement, Solicited: true, Override: true, Target: n.Target, MAC: mac}
	dst := h.Src
	if !dst.IsValid() || dst.IsUnspecified() { // duplicate address detection: answer to all nodes
		a.Solicited, dst = false, netip.IPv6LinkLocalAllNodes()
	}
	return a.Append(b, n.Target, dst)
}
