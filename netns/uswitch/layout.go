package uswitch

import "encoding/binary"

const (
	etherLen = 14

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8

	protoTCP = 6
	protoUDP = 17

	// maxHeader limits the headers that the switch copies: a VLAN tag, IPv4 or
	// IPv6 with extensions, TCP with options.
	maxHeader = 192
)

// layout holds the header offsets of a frame.
type layout struct {
	l3, l4, payload int
	v6              bool
	tagged          bool
	proto           uint8 // protoTCP or protoUDP
}

// checksumAt returns the offset of the transport checksum.
func (l *layout) checksumAt() int {
	if l.proto == protoTCP {
		return l.l4 + 16
	}
	return l.l4 + 6
}

// parse finds the headers of an unfragmented UDP or TCP packet; ok is false for
// anything else. It checks header lengths only, not the total length.
func parse(b []byte) (l layout, ok bool) {
	if len(b) < etherLen {
		return l, false
	}
	at, typ := etherLen, binary.BigEndian.Uint16(b[12:])
	for (typ == etherVLAN || typ == etherQinQ) && len(b) >= at+4 {
		typ = binary.BigEndian.Uint16(b[at+2:])
		at += 4
		l.tagged = true
	}
	l.l3 = at
	switch typ {
	case etherIPv4:
		ok = l.parseIPv4(b)
	case etherIPv6:
		ok = l.parseIPv6(b)
	}
	return l, ok && l.parseTransport(b)
}

// parseIPv4 finds the transport header. It returns false if the IPv4 header is invalid, incomplete
// or that of a fragment.
func (l *layout) parseIPv4(b []byte) bool {
	ip := b[l.l3:]
	if len(ip) < 20 || ip[0]>>4 != 4 {
		return false
	}
	header := int(ip[0]&15) * 4
	if header < 20 || len(ip) < header || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
		return false
	}
	l.l4, l.proto = l.l3+header, ip[9]
	return true
}

// parseIPv6 finds the transport header. It returns false if b is not IPv6 or ends before this header.
// It skips extension headers except that of fragments, which parseTransport rejects.
func (l *layout) parseIPv6(b []byte) bool {
	ip := b[l.l3:]
	if len(ip) < 40 || ip[0]>>4 != 6 {
		return false
	}
	l.v6, l.proto, l.l4 = true, ip[6], l.l3+40
	for l.proto == 0 || l.proto == 43 || l.proto == 60 { // hop by hop, routing, destination options
		if len(b) < l.l4+8 {
			return false
		}
		l.proto = b[l.l4]
		l.l4 += (int(b[l.l4+1]) + 1) * 8
	}
	return true
}

// parseTransport finds the payload. It returns false unless the headers are complete, of UDP or TCP
// and at most maxHeader long.
func (l *layout) parseTransport(b []byte) bool {
	switch l.proto {
	case protoUDP:
		l.payload = l.l4 + 8
	case protoTCP:
		if len(b) < l.l4+20 {
			return false
		}
		header := int(b[l.l4+12]>>4) * 4
		if header < 20 {
			return false
		}
		l.payload = l.l4 + header
	default:
		return false
	}
	return l.payload <= len(b) && l.payload <= maxHeader
}

// ipBytes returns the length of the IP packet, without Ethernet padding.
func (l *layout) ipBytes(b []byte) int {
	if l.v6 {
		return 40 + int(binary.BigEndian.Uint16(b[l.l3+4:]))
	}
	return int(binary.BigEndian.Uint16(b[l.l3+2:]))
}

// setLength sets the length fields in the headers h for n bytes of payload, the
// IPv4 header checksum, and the pseudo-header sum as CHECKSUM_PARTIAL requires.
func (l *layout) setLength(h []byte, n int) {
	transport := l.payload - l.l4 + n
	if l.v6 {
		binary.BigEndian.PutUint16(h[l.l3+4:], uint16(l.l4-l.l3-40+transport))
	} else {
		ip := h[l.l3:l.l4]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+transport))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip)))
	}
	if l.proto == protoUDP {
		binary.BigEndian.PutUint16(h[l.l4+4:], uint16(transport))
	}
	binary.BigEndian.PutUint16(h[l.checksumAt():], l.pseudoSum(h, transport))
}

// pseudoSum returns the folded sum over the pseudo-header, not inverted. transport is
// the length of the transport header and payload.
func (l *layout) pseudoSum(h []byte, transport int) uint16 {
	addresses := h[l.l3+12 : l.l3+20]
	if l.v6 {
		addresses = h[l.l3+8 : l.l3+40]
	}
	return fold(sum(addresses) + uint64(l.proto) + uint64(transport))
}

// sum adds up b as big-endian 32-bit words, which fold reduces to the sum of 16-bit words.
func sum(b []byte) (s uint64) {
	for ; len(b) >= 4; b = b[4:] {
		s += uint64(binary.BigEndian.Uint32(b))
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

// fold adds the 16-bit words of a sum in ones' complement arithmetic.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s&0xffff)
}
