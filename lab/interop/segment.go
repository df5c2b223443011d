package interop

import (
	"encoding/binary"
	"net/netip"
)

// segment is a TCP segment as seen in a frame. Its payload lies in the frame.
type segment struct {
	src, dst netip.AddrPort
	seq, ack uint32
	flags    uint8
	payload  []byte
}

// TCP's flags.
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
)

// Lengths of headers without options.
const (
	ethernetLen = 14
	ipv4Len     = 20
	ipv6Len     = 40
	tcpLen      = 20
	protocolTCP = 6
)

// parseFrame finds the TCP segment in an Ethernet frame; false means that there is
// none, or none whole.
func parseFrame(frame []byte) (s segment, ok bool) {
	if len(frame) < ethernetLen {
		return s, false
	}
	packet := frame[ethernetLen:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		return parseIPv4(packet)
	case 0x86dd:
		return parseIPv6(packet)
	default:
		return s, false
	}
}

// parseIPv4 and parseIPv6 find the TCP segment in an IP packet.
func parseIPv4(p []byte) (s segment, ok bool) {
	if len(p) < ipv4Len || p[0]>>4 != 4 || p[9] != protocolTCP {
		return s, false
	}
	header, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	fragment := binary.BigEndian.Uint16(p[6:])&0x3fff != 0
	if header < ipv4Len || total < header || total > len(p) || fragment {
		return s, false
	}
	return parseTCP(netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20])), p[header:total])
}

func parseIPv6(p []byte) (s segment, ok bool) {
	if len(p) < ipv6Len || p[0]>>4 != 6 || p[6] != protocolTCP {
		return s, false
	}
	length := int(binary.BigEndian.Uint16(p[4:]))
	if length > len(p)-ipv6Len {
		return s, false
	}
	return parseTCP(netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40])), p[ipv6Len:][:length])
}

// parseTCP parses a TCP segment.
func parseTCP(src, dst netip.Addr, p []byte) (s segment, ok bool) {
	if len(p) < tcpLen {
		return s, false
	}
	header := int(p[12]>>4) * 4
	if header < tcpLen || header > len(p) {
		return s, false
	}
	return segment{
		src:     netip.AddrPortFrom(src, binary.BigEndian.Uint16(p)),
		dst:     netip.AddrPortFrom(dst, binary.BigEndian.Uint16(p[2:])),
		seq:     binary.BigEndian.Uint32(p[4:]),
		ack:     binary.BigEndian.Uint32(p[8:]),
		flags:   p[13],
		payload: p[header:],
	}, true
}
