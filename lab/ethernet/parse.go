package ethernet

import (
	"encoding/binary"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
)

const (
	etherLen = 14

	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherQinQ = 0x88a8

	protoIGMP   = 2
	protoICMPv6 = 58
	// protoOpaque stands for a packet without a complete transport header, such as a fragment.
	protoOpaque = 44

	// transportLen is the transport header length before the payload: that of UDP. It is the same
	// for each protocol, so that the IP length follows from the payload length.
	transportLen = link.UDPHeaderLen
)

// headers holds the header offsets of an IP packet in a frame.
type headers struct {
	l3, l4  int
	payload int // l4 + transportLen, or l4 if the packet is shorter
	end     int // of the IP packet, without Ethernet padding
	v6      bool
	proto   uint8
}

// parse sets h to the header offsets of the IP packet in frame b. It returns false if there
// is none or it is longer than the frame.
func (h *headers) parse(b []byte) bool {
	*h = headers{}
	at, typ, ok := etherPayload(b)
	if !ok {
		return false
	}
	h.l3 = at
	switch typ {
	case link.EtherTypeIPv4:
		ok = h.parseIPv4(b)
	case link.EtherTypeIPv6:
		ok = h.parseIPv6(b)
	default:
		return false
	}
	if !ok {
		return false
	}
	h.checkTransport(b)
	h.payload = h.l4
	if h.end-h.l4 >= transportLen { // impairments do not see these 8 bytes: the UDP header or the start of TCP's
		h.payload += transportLen
	}
	return true
}

// etherPayload returns the offset and the EtherType of a frame's payload, after any VLAN tags. ok is
// false if the frame is shorter than an Ethernet header.
func etherPayload(b []byte) (at int, typ uint16, ok bool) {
	if len(b) < etherLen {
		return 0, 0, false
	}
	at, typ = etherLen, binary.BigEndian.Uint16(b[12:])
	for (typ == etherVLAN || typ == etherQinQ) && len(b) >= at+4 {
		typ = binary.BigEndian.Uint16(b[at+2:])
		at += 4
	}
	return at, typ, true
}

// parseIPv4 parses the IPv4 header at h.l3; false if its version or lengths are invalid. It sets the
// protocol of a fragment to protoOpaque, so that no transport header is parsed.
func (h *headers) parseIPv4(b []byte) bool {
	ip := b[h.l3:]
	if len(ip) < link.IPv4HeaderLen || ip[0]>>4 != 4 {
		return false
	}
	header, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if header < link.IPv4HeaderLen || total < header || total > len(ip) {
		return false
	}
	h.l4, h.end, h.proto = h.l3+header, h.l3+total, ip[9]
	if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 { // more fragments, or a fragment offset
		h.proto = protoOpaque
	}
	return true
}

// parseIPv6 parses the IPv6 header at h.l3 and skips extension headers; false if the version or a
// length is invalid.
func (h *headers) parseIPv6(b []byte) bool {
	ip := b[h.l3:]
	if len(ip) < link.IPv6HeaderLen || ip[0]>>4 != 6 {
		return false
	}
	length := int(binary.BigEndian.Uint16(ip[4:]))
	if length > len(ip)-link.IPv6HeaderLen {
		return false
	}
	h.v6, h.proto, h.l4 = true, ip[6], h.l3+link.IPv6HeaderLen
	h.end = h.l4 + length
	for h.proto == 0 || h.proto == 43 || h.proto == 60 { // hop by hop, routing, destination options
		if h.end-h.l4 < 8 {
			return false
		}
		skip := (int(b[h.l4+1]) + 1) * 8
		if skip > h.end-h.l4 {
			return false
		}
		h.proto = b[h.l4]
		h.l4 += skip
	}
	return true
}

// checkTransport sets h.proto to protoOpaque, so that the transport header is not used, if the UDP
// or TCP header is incomplete or contradicts the packet's length. Other protocols are not checked.
func (h *headers) checkTransport(b []byte) {
	t := b[h.l4:h.end]
	switch h.proto {
	case link.ProtocolUDP:
		if len(t) < link.UDPHeaderLen || int(binary.BigEndian.Uint16(t[4:])) != len(t) {
			h.proto = protoOpaque
		}
	case link.ProtocolTCP:
		if len(t) < link.TCPHeaderLen {
			h.proto = protoOpaque
			return
		}
		header := int(t[12]>>4) * 4 // the data offset, in 32-bit words, is in the upper four bits
		if header < link.TCPHeaderLen || header > len(t) {
			h.proto = protoOpaque
		}
	}
}

// alwaysPasses reports whether a packet is exempt from impairments, because hosts
// need it to reach each other: group membership, router and neighbour discovery.
func (h *headers) alwaysPasses(b []byte) bool {
	switch {
	case h.proto == protoIGMP && !h.v6:
		return true
	case h.proto == protoICMPv6 && h.v6 && h.end > h.l4:
		typ := b[h.l4]
		return (typ >= 130 && typ <= 137) || typ == 143 // MLD, router and neighbour discovery
	}
	return false
}

// datagram sets d to the header fields (ports for UDP only) and the payload of the IP packet in b.
func (h *headers) datagram(b []byte, d *link.Datagram) {
	link.ReadIP(b[h.l3:], d)
	d.Payload = b[h.payload:h.end:h.end]
	if h.proto == link.ProtocolUDP {
		d.Src = netip.AddrPortFrom(d.Src.Addr(), binary.BigEndian.Uint16(b[h.l4:]))
		d.Dst = netip.AddrPortFrom(d.Dst.Addr(), binary.BigEndian.Uint16(b[h.l4+2:]))
	}
}

// checksumAt returns the offset of the UDP or TCP checksum; false for other protocols.
func (h *headers) checksumAt() (int, bool) {
	switch h.proto {
	case link.ProtocolUDP:
		return h.l4 + 6, true
	case link.ProtocolTCP:
		return h.l4 + 16, true
	}
	return 0, false
}

// pseudoSum returns the sum over the pseudo-header of the transport checksum.
func (h *headers) pseudoSum(b []byte) uint64 {
	addresses := b[h.l3+12 : h.l3+20]
	if h.v6 {
		addresses = b[h.l3+8 : h.l3+40]
	}
	return link.SumWords(uint64(h.proto)+uint64(h.end-h.l4), addresses)
}

// setChecksum sets the UDP or TCP checksum of frame b. If partial is set, it sets the field to the
// sum over the pseudo-header, and the NIC completes the checksum (CHECKSUM_PARTIAL). If not, a UDP
// checksum of 0, which means none, stays 0.
func (h *headers) setChecksum(b []byte, partial bool) {
	at, ok := h.checksumAt()
	if !ok {
		return
	}
	field := b[at : at+2]
	switch {
	case partial:
		binary.BigEndian.PutUint16(field, link.FoldSum(h.pseudoSum(b)))
	case h.proto == link.ProtocolUDP && field[0] == 0 && field[1] == 0:
	default:
		field[0], field[1] = 0, 0
		check := ^link.FoldSum(link.SumWords(h.pseudoSum(b), b[h.l4:h.end]))
		if check == 0 && h.proto == link.ProtocolUDP {
			check = 0xffff // 0 would mean none
		}
		binary.BigEndian.PutUint16(field, check)
	}
}
