package interop

import (
	"encoding/binary"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance/packet"
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

// tcpLen is the length of a TCP header without options.
const tcpLen = 20

// parseFrame finds the TCP segment in an Ethernet frame; false means that there is
// none, or none whole.
func parseFrame(frame []byte) (s segment, ok bool) {
	_, ip, err := packet.ParseEthernet(frame)
	if err != nil {
		return s, false
	}
	h, payload, _, err := packet.ParseIP(ip)
	if err != nil || h.Fragmented() || *h.Protocol != packet.ProtocolTCP {
		return s, false
	}
	return parseTCP(h.Src, h.Dst, payload)
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
