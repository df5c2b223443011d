package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Lengths of the headers around a transport packet.
const (
	IPv4HeaderLen = 20
	IPv6HeaderLen = 40
	UDPHeaderLen  = 8

	// MaxUDPPayload is the longest UDP payload of an IPv4 packet. The same limit is used for
	// IPv6.
	MaxUDPPayload = 1<<16 - 1 - IPv4HeaderLen - UDPHeaderLen
)

const (
	protocolUDP      = 17
	ipv4DontFragment = 0x4000
)

// Errors in the IP and UDP headers of a packet. RoCEv2 is stricter than IP: receivers drop
// such packets silently.
var (
	ErrIPVersion   = errors.New("IP version is not the expected one")
	ErrIPOptions   = errors.New("IPv4 header has options")
	ErrIPLength    = errors.New("IP length does not fit the packet")
	ErrIPChecksum  = errors.New("IPv4 header checksum is wrong")
	ErrIPMapped    = errors.New("IPv6 header has an IPv4-mapped address")
	ErrFragment    = errors.New("IPv4 packet is a fragment or may become one")
	ErrNotUDP      = errors.New("IP protocol is not UDP")
	ErrUDPLength   = errors.New("UDP length differs from that of the IP payload")
	ErrNotRoCEPort = fmt.Errorf("UDP destination port is not %d", Port)
)

var (
	errShortIP   = shortError("IP header", 1)
	errShortIPv4 = shortError("IPv4 header", IPv4HeaderLen)
	errShortIPv6 = shortError("IPv6 header", IPv6HeaderLen)
)

// IPUDP are the IP and UDP headers of a packet, for captures, tests and links below the
// socket.
type IPUDP struct {
	Src, Dst    netip.AddrPort // both IPv4 or both IPv6, never mapped
	TClass      uint8          // IPv4 TOS or IPv6 traffic class: DSCP and ECN
	HopLimit    uint8          // IPv4 TTL or IPv6 hop limit
	ID          uint16         // IPv4 identification
	FlowLabel   uint32         // IPv6, 20 bits
	UDPChecksum uint16         // not computed: RoCEv2 sends 0 and relies on the ICRC
}

// ICRC returns the ICRC of packets between h's addresses.
func (h *IPUDP) ICRC() ICRC { return NewICRC(h.Src, h.Dst) }

// Append appends IP header, UDP header and payload. An IPv4 header gets its checksum and the
// don't-fragment bit. Append panics if the addresses are of different families, or if the
// payload is longer than MaxUDPPayload.
func (h *IPUDP) Append(b, payload []byte) []byte {
	src, dst := h.Src.Addr().Unmap(), h.Dst.Addr().Unmap()
	if src.BitLen() != dst.BitLen() || src.BitLen() == 0 {
		panic(fmt.Sprintf("wire: no IP header for addresses %v and %v", h.Src, h.Dst))
	}
	if len(payload) > MaxUDPPayload {
		panic(fmt.Sprintf("wire: payload of %d bytes exceeds the %d of an IP packet", len(payload), MaxUDPPayload))
	}
	udpLen := uint16(UDPHeaderLen + len(payload))
	if src.Is4() {
		b = h.appendIPv4(b, src.As4(), dst.As4(), udpLen)
	} else {
		b = h.appendIPv6(b, src.As16(), dst.As16(), udpLen)
	}
	b = binary.BigEndian.AppendUint16(b, h.Src.Port())
	b = binary.BigEndian.AppendUint16(b, h.Dst.Port())
	b = binary.BigEndian.AppendUint16(b, udpLen)
	b = binary.BigEndian.AppendUint16(b, h.UDPChecksum)
	return append(b, payload...)
}

// appendIPv4 appends the IPv4 header of a packet whose UDP header and payload have udpLen bytes.
func (h *IPUDP) appendIPv4(b []byte, src, dst [4]byte, udpLen uint16) []byte {
	start := len(b)
	b = append(b, 0x45, h.TClass)
	b = binary.BigEndian.AppendUint16(b, IPv4HeaderLen+udpLen)
	b = binary.BigEndian.AppendUint16(b, h.ID)
	b = binary.BigEndian.AppendUint16(b, ipv4DontFragment)
	b = append(b, h.HopLimit, protocolUDP, 0, 0)
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	binary.BigEndian.PutUint16(b[start+10:], ^onesSum(b[start:]))
	return b
}

// appendIPv6 appends the IPv6 header of a packet whose UDP header and payload have udpLen bytes.
func (h *IPUDP) appendIPv6(b []byte, src, dst [16]byte, udpLen uint16) []byte {
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(h.TClass)<<20|h.FlowLabel&(1<<20-1))
	b = binary.BigEndian.AppendUint16(b, udpLen)
	b = append(b, protocolUDP, h.HopLimit)
	b = append(b, src[:]...)
	return append(b, dst[:]...)
}

// ParseIPUDP parses an IP packet of either version. See ParseIPv4.
func ParseIPUDP(b []byte) (h IPUDP, payload []byte, err error) {
	switch {
	case len(b) == 0:
		return h, nil, errShortIP
	case b[0]>>4 == 4:
		return ParseIPv4(b)
	case b[0]>>4 == 6:
		return ParseIPv6(b)
	}
	return h, nil, ErrIPVersion
}

// ParseIPv4 parses the payload of an Ethernet frame of type 0x0800. The returned payload
// aliases b; padding of the frame is ignored.
func ParseIPv4(b []byte) (h IPUDP, payload []byte, err error) {
	if len(b) < IPv4HeaderLen {
		return h, nil, errShortIPv4
	}
	totalLen := int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case b[0]>>4 != 4:
		return h, nil, ErrIPVersion
	case b[0]&0x0F > IPv4HeaderLen/4:
		return h, nil, ErrIPOptions
	case b[0]&0x0F < IPv4HeaderLen/4, totalLen < IPv4HeaderLen, totalLen > len(b):
		return h, nil, ErrIPLength
	case onesSum(b[:IPv4HeaderLen]) != 0xFFFF:
		return h, nil, ErrIPChecksum
	case binary.BigEndian.Uint16(b[6:]) != ipv4DontFragment:
		return h, nil, ErrFragment
	case b[9] != protocolUDP:
		return h, nil, ErrNotUDP
	}
	h = IPUDP{TClass: b[1], HopLimit: b[8], ID: binary.BigEndian.Uint16(b[4:])}
	src, dst := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	payload, err = h.parseUDP(src, dst, b[IPv4HeaderLen:totalLen])
	return h, payload, err
}

// ParseIPv6 parses the payload of an Ethernet frame of type 0x86DD, as ParseIPv4 does.
// Extension headers are not supported: they give ErrNotUDP.
func ParseIPv6(b []byte) (h IPUDP, payload []byte, err error) {
	if len(b) < IPv6HeaderLen {
		return h, nil, errShortIPv6
	}
	word := binary.BigEndian.Uint32(b)
	payloadLen := int(binary.BigEndian.Uint16(b[4:]))
	src, dst := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	switch {
	case word>>28 != 6:
		return h, nil, ErrIPVersion
	case payloadLen > len(b)-IPv6HeaderLen, payloadLen > UDPHeaderLen+MaxUDPPayload:
		return h, nil, ErrIPLength
	case b[6] != protocolUDP:
		return h, nil, ErrNotUDP
	case src.Is4In6(), dst.Is4In6(): // never on the wire; netip would take it for IPv4
		return h, nil, ErrIPMapped
	}
	h = IPUDP{TClass: uint8(word >> 20), FlowLabel: word & (1<<20 - 1), HopLimit: b[7]}
	payload, err = h.parseUDP(src, dst, b[IPv6HeaderLen:][:payloadLen])
	return h, payload, err
}

// parseUDP decodes the UDP header at the front of b, and returns the payload.
func (h *IPUDP) parseUDP(src, dst netip.Addr, b []byte) (payload []byte, err error) {
	if len(b) < UDPHeaderLen || int(binary.BigEndian.Uint16(b[4:])) != len(b) {
		return nil, ErrUDPLength
	}
	h.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b))
	h.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
	h.UDPChecksum = binary.BigEndian.Uint16(b[6:])
	if h.Dst.Port() != Port {
		return nil, ErrNotRoCEPort
	}
	return b[UDPHeaderLen:len(b):len(b)], nil
}

// onesSum is the ones' complement sum of the big-endian 16-bit words of b, whose length is
// even.
func onesSum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	return uint16(sum)
}
