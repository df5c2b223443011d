package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// EtherTypes.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeVLAN = 0x8100
	EtherTypeIPv6 = 0x86dd
)

// minFrame is the minimum length of a frame without its FCS.
const minFrame = 60

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the broadcast address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// String formats the address as 02:00:00:00:00:01.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// MulticastMAC returns the MAC of an IP multicast group (RFC 1112, RFC 2464).
func MulticastMAC(group netip.Addr) MAC {
	if group = group.Unmap(); group.Is4() {
		a := group.As4()
		return MAC{0x01, 0x00, 0x5e, a[1] & 0x7f, a[2], a[3]}
	}
	a := group.As16()
	return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

// Ethernet is the header of a frame without a VLAN tag.
type Ethernet struct {
	Dst, Src MAC
	Type     uint16
}

// Append appends the frame with this header and payload, padded to minimum length, without FCS.
func (h Ethernet) Append(b, payload []byte) []byte {
	start := len(b)
	b = append(append(b, h.Dst[:]...), h.Src[:]...)
	b = binary.BigEndian.AppendUint16(b, h.Type)
	b = append(b, payload...)
	if short := minFrame - (len(b) - start); short > 0 {
		b = append(b, make([]byte, short)...)
	}
	return b
}

// ParseEthernet parses the header of a frame. The payload includes padding.
func ParseEthernet(b []byte) (h Ethernet, payload []byte, err error) {
	if len(b) < 14 {
		return h, nil, fmt.Errorf("Ethernet header: %w: %d of 14 bytes", ErrShort, len(b))
	}
	h = Ethernet{Dst: MAC(b), Src: MAC(b[6:]), Type: binary.BigEndian.Uint16(b[12:])}
	if h.Type == EtherTypeVLAN {
		return h, b[14:], errors.New("unexpected VLAN tag")
	}
	return h, b[14:], nil
}

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

// Append appends an IPv6 packet with the message, and with the MAC option if n.MAC is set.
func (n Neighbor) Append(b []byte, src, dst netip.Addr) []byte {
	m := []byte{n.Type, 0, 0, 0, 0, 0, 0, 0}
	for i, set := range []bool{n.Router, n.Solicited, n.Override} {
		if set {
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
		m = append(append(m, option, 1 /* length, in units of eight bytes */), n.MAC[:]...)
	}
	sum := Checksum(pseudoHeader(src, dst, ProtocolICMPv6, len(m)), m)
	binary.BigEndian.PutUint16(m[2:], sum)
	// The hop limit must be 255, which shows that no router forwarded the packet.
	h := IP{Src: src, Dst: dst, Protocol: new(uint8(ProtocolICMPv6)), HopLimit: new(uint8(255))}
	return h.Append(b, m)
}

// ErrNotNeighbor is the error of a packet without neighbour discovery.
var ErrNotNeighbor = errors.New("not a neighbour discovery packet")

// ParseNeighbor parses an IPv6 packet with a neighbour discovery message, and checks checksum
// and hop limit. It returns [ErrNotNeighbor] for any other IP packet.
func ParseNeighbor(b []byte) (h IP, n Neighbor, err error) {
	h, m, _, err := ParseIP(b)
	if err != nil {
		return h, n, err
	}
	if !h.Is6() || *h.Protocol != ProtocolICMPv6 || len(m) == 0 || m[0] != NeighborSolicitation && m[0] != NeighborAdvertisement {
		return h, n, ErrNotNeighbor
	}
	const fixedLen = 24 // of the message before its options
	switch {
	case len(m) < fixedLen:
		return h, n, fmt.Errorf("neighbour discovery: %w: %d of %d bytes", ErrShort, len(m), fixedLen)
	case Checksum(pseudoHeader(h.Src, h.Dst, ProtocolICMPv6, len(m)), m) != 0:
		return h, n, errors.New("neighbour discovery: wrong checksum")
	case *h.HopLimit != 255:
		return h, n, fmt.Errorf("neighbour discovery: hop limit %d, not 255", *h.HopLimit)
	}
	n = Neighbor{
		Type: m[0], Router: m[4]&0x80 != 0, Solicited: m[4]&0x40 != 0, Override: m[4]&0x20 != 0,
		Target: netip.AddrFrom16([16]byte(m[8:])),
	}
	for options := m[fixedLen:]; len(options) >= 8; {
		size := 8 * int(options[1])
		if size == 0 || size > len(options) {
			return h, n, fmt.Errorf("neighbour discovery: option of %d bytes where %d are left", size, len(options))
		}
		if options[0] == 1 || options[0] == 2 { // source or target link-layer address
			n.MAC = MAC(options[2:])
		}
		options = options[size:]
	}
	return h, n, nil
}

// Answer appends the packet that answers solicitation n: an advertisement that the target has this
// MAC. h is the IP header of the solicitation.
func (n Neighbor) Answer(b []byte, h IP, mac MAC) []byte {
	advertisement := Neighbor{Type: NeighborAdvertisement, Solicited: true, Override: true, Target: n.Target, MAC: mac}
	dst := h.Src
	if !dst.IsValid() || dst.IsUnspecified() { // duplicate address detection: answer to all nodes
		advertisement.Solicited, dst = false, netip.IPv6LinkLocalAllNodes()
	}
	return advertisement.Append(b, n.Target, dst)
}

// Operations of ARP.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARP is an ARP message for IPv4 on Ethernet (RFC 826).
type ARP struct {
	Op        uint16
	SenderMAC MAC
	Sender    netip.Addr
	TargetMAC MAC
	Target    netip.Addr
}

// arpEthernetIPv4 is the start of the message: hardware type, protocol type, lengths.
var arpEthernetIPv4 = []byte{0, 1, 8, 0, 6, 4}

// Append appends the message, which is the payload of an Ethernet frame.
func (a ARP) Append(b []byte) []byte {
	sender, target := addr4(a.Sender), addr4(a.Target)
	b = append(append(b, arpEthernetIPv4...), byte(a.Op>>8), byte(a.Op))
	b = append(append(b, a.SenderMAC[:]...), sender[:]...)
	return append(append(b, a.TargetMAC[:]...), target[:]...)
}

// ParseARP parses the payload of an Ethernet frame, and ignores its padding.
func ParseARP(b []byte) (a ARP, err error) {
	if len(b) < 28 {
		return a, fmt.Errorf("ARP: %w: %d of 28 bytes", ErrShort, len(b))
	}
	if !bytes.Equal(b[:6], arpEthernetIPv4) {
		return a, fmt.Errorf("ARP is not for IPv4 on Ethernet: %x", b[:6])
	}
	return ARP{
		Op:        uint16(b[6])<<8 | uint16(b[7]),
		SenderMAC: MAC(b[8:]), Sender: netip.AddrFrom4([4]byte(b[14:])),
		TargetMAC: MAC(b[18:]), Target: netip.AddrFrom4([4]byte(b[24:])),
	}, nil
}

// Reply returns the reply to request a, which says that its target has this MAC.
func (a ARP) Reply(mac MAC) ARP {
	return ARP{Op: ARPReply, SenderMAC: mac, Sender: a.Target, TargetMAC: a.SenderMAC, Target: a.Sender}
}
