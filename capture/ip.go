package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
)

// IP is an IPv4 or IPv6 header.
type IP struct {
	Version  uint8 // 0 if there is none
	Src, Dst netip.Addr
	TClass   uint8 // DSCP and ECN
	HopLimit uint8
	Protocol uint8
	Length   int // of the payload, on the wire

	ID           uint16 // IPv4
	DontFragment bool   // IPv4
	Fragment     bool
	Offset       int    // of the fragment
	ChecksumOK   bool   // IPv4
	FlowLabel    uint32 // IPv6

	packet    []byte // as far as captured, without link-layer padding
	headerLen int    // with extension headers
}

// Further IP protocol numbers; package link has those of TCP and UDP.
const (
	protoICMP   = 1
	protoIGMP   = 2
	protoICMPv6 = 58
)

// ECN field of the traffic class.
const (
	ecnMask = 3
	ecnCE   = 3
)

// parseIP decodes the header and returns the payload without padding; problem is empty on success.
func (ip *IP) parseIP(b []byte) (rest []byte, problem string) {
	if len(b) == 0 {
		return nil, "an IP packet of no bytes"
	}
	switch b[0] >> 4 {
	case 4:
		return ip.parseIPv4(b)
	case 6:
		return ip.parseIPv6(b)
	}
	return nil, fmt.Sprintf("IP version %d", b[0]>>4)
}

// parseIPv4 decodes an IPv4 header and returns the payload; problem is empty on success.
func (ip *IP) parseIPv4(b []byte) (rest []byte, problem string) {
	if len(b) < 20 {
		return nil, "IPv4 header is cut off"
	}
	size, total := int(b[0]&0x0F)*4, int(binary.BigEndian.Uint16(b[2:]))
	fragment := binary.BigEndian.Uint16(b[6:])
	*ip = IP{
		Version: 4, TClass: b[1], HopLimit: b[8], Protocol: b[9], ID: binary.BigEndian.Uint16(b[4:]),
		DontFragment: fragment&link.DontFragment != 0, Offset: int(fragment&0x1FFF) * 8, Fragment: fragment&0x3FFF != 0,
	}
	ip.Src, ip.Dst = link.IPAddrs(b)
	if size < 20 || len(b) < size || total < size {
		return nil, "IPv4 lengths contradict each other"
	}
	ip.packet = b[:min(total, len(b))]
	ip.ChecksumOK = link.Checksum(b[:size]) == 0
	ip.Length, ip.headerLen = total-size, size
	return ip.packet[size:], ""
}

// parseIPv6 decodes an IPv6 header, skips its extension headers and returns the payload; problem is
// empty on success.
func (ip *IP) parseIPv6(b []byte) (rest []byte, problem string) {
	if len(b) < 40 {
		return nil, "IPv6 header is cut off"
	}
	word := binary.BigEndian.Uint32(b)
	*ip = IP{
		Version: 6, TClass: uint8(word >> 20), FlowLabel: word & 0xFFFFF, HopLimit: b[7], Protocol: b[6],
		Length: int(binary.BigEndian.Uint16(b[4:])), ChecksumOK: true, DontFragment: true,
	}
	ip.Src, ip.Dst = link.IPAddrs(b)
	ip.packet = b[:min(40+ip.Length, len(b))]
	ip.headerLen = 40
	rest = ip.packet[ip.headerLen:]
	for {
		size := 0
		switch ip.Protocol {
		case 0, 43, 60: // hop by hop, routing, destination
			if len(rest) >= 8 {
				size = 8 + 8*int(rest[1])
			}
		case 44: // fragment
			if len(rest) >= 8 {
				size = 8
				field := binary.BigEndian.Uint16(rest[2:])
				ip.Fragment, ip.Offset = field&^7 != 0 || field&1 != 0, int(field&^7)
			}
		default:
			return rest, ""
		}
		if size == 0 || size > len(rest) {
			return nil, "IPv6 extension header is cut off"
		}
		ip.Protocol, rest = rest[0], rest[size:]
		ip.Length -= size
		ip.headerLen += size
	}
}

const udpHeaderLen = 8

// UDP is a UDP header.
type UDP struct {
	Present          bool
	SrcPort, DstPort uint16
	Length           int // of the payload, on the wire
	Checksum         uint16
}

// TCP is a TCP header.
type TCP struct {
	Present          bool
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	Flags            uint8
	Window           uint16
	Length           int // of the payload, on the wire
}

// TCP flags.
const (
	FlagFIN uint8 = 1 << iota
	FlagSYN
	FlagRST
	FlagPSH
	FlagACK
	FlagURG
)

// parse decodes the header of a datagram of length bytes, and returns the payload as far as
// captured. problem is empty on success.
func (u *UDP) parse(b []byte, length int) (rest []byte, problem string) {
	if len(b) < 8 {
		return nil, "UDP header is cut off"
	}
	*u = UDP{
		Present: true, SrcPort: binary.BigEndian.Uint16(b), DstPort: binary.BigEndian.Uint16(b[2:]),
		Length: int(binary.BigEndian.Uint16(b[4:])) - 8, Checksum: binary.BigEndian.Uint16(b[6:]),
	}
	if u.Length < 0 || u.Length > length-8 {
		return nil, fmt.Sprintf("UDP length of %d in %d bytes", u.Length+8, length)
	}
	return b[8:min(8+u.Length, len(b))], ""
}

// parse decodes the header of a segment of length bytes, and returns the payload as far as
// captured. problem is empty on success.
func (t *TCP) parse(b []byte, length int) (rest []byte, problem string) {
	if len(b) < 20 {
		return nil, "TCP header is cut off"
	}
	size := int(b[12]>>4) * 4
	*t = TCP{
		Present: true, SrcPort: binary.BigEndian.Uint16(b), DstPort: binary.BigEndian.Uint16(b[2:]),
		Seq: binary.BigEndian.Uint32(b[4:]), Ack: binary.BigEndian.Uint32(b[8:]),
		Flags: b[13], Window: binary.BigEndian.Uint16(b[14:]), Length: length - size,
	}
	if size < 20 || t.Length < 0 {
		return nil, "TCP header length is wrong"
	}
	if size > len(b) {
		return nil, "TCP options are cut off"
	}
	return b[size:], ""
}
