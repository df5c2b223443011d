package bench

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/link"
)

const (
	protocolUDP  = 17
	dontFragment = 0x4000
	flowLabel    = 1<<20 - 1 // mask
)

// appendPacket appends the IP packet that a socket would send for d.
func appendPacket(b []byte, d *link.Datagram) []byte {
	start := len(b)
	length := link.UDPHeaderLen + len(d.Payload)
	src, dst := d.Src.Addr(), d.Dst.Addr()
	if dst.Is4() {
		b = append(b, 0x45, d.TClass)
		b = binary.BigEndian.AppendUint16(b, uint16(link.IPv4HeaderLen+length))
		b = binary.BigEndian.AppendUint16(b, uint16(d.IPID))
		flags := uint16(dontFragment)
		if d.Variants&link.MayFragment != 0 {
			flags = 0
		}
		b = binary.BigEndian.AppendUint16(b, flags)
		b = append(b, d.HopLimit, protocolUDP, 0, 0)
		b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
		binary.BigEndian.PutUint16(b[start+10:], ^onesComplementSum(0, b[start:]))
	} else {
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(d.TClass)<<20|d.FlowLabel&flowLabel)
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, protocolUDP, d.HopLimit)
		b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	}
	udp := len(b)
	b = binary.BigEndian.AppendUint16(b, d.Src.Port())
	b = binary.BigEndian.AppendUint16(b, d.Dst.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(append(b, 0, 0), d.Payload...)
	if d.Variants&link.NoChecksum != 0 {
		return b
	}
	check := ^onesComplementSum(pseudoHeaderSum(src, dst, length), b[udp:])
	if check == 0 {
		check = 0xffff // 0 means no checksum
	}
	binary.BigEndian.PutUint16(b[udp+6:], check)
	return b
}

// cannotf returns an error for a packet that a simulated wire cannot carry.
func cannotf(format string, args ...any) error {
	return fmt.Errorf("a simulated wire carries only valid UDP datagrams: %w: %s", conformance.ErrBenchCannot, fmt.Sprintf(format, args...))
}

// parsePacket parses an IP packet, whose payload is not copied. Padding after the
// packet is ignored.
func parsePacket(b []byte) (d link.Datagram, err error) {
	if len(b) == 0 {
		return d, cannotf("the packet is empty")
	}
	var udp []byte
	switch version := b[0] >> 4; version {
	case 4:
		udp, err = parseIPv4(&d, b)
	case 6:
		udp, err = parseIPv6(&d, b)
	default:
		return d, cannotf("IP version %d", version)
	}
	if err != nil {
		return d, err
	}
	if d.HopLimit == 0 {
		return d, cannotf("a hop limit of 0")
	}
	if len(udp) < link.UDPHeaderLen {
		return d, cannotf("a UDP header of %d bytes", len(udp))
	}
	if length := int(binary.BigEndian.Uint16(udp[4:])); length != len(udp) {
		return d, cannotf("UDP length %d with %d bytes", length, len(udp))
	}
	src, dst := d.Src.Addr(), d.Dst.Addr()
	switch check := binary.BigEndian.Uint16(udp[6:]); {
	case check == 0:
		d.Variants |= link.NoChecksum
	case onesComplementSum(pseudoHeaderSum(src, dst, len(udp)), udp) != 0xffff:
		return d, cannotf("a wrong UDP checksum, %#04x", check)
	}
	d.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(udp))
	d.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(udp[2:]))
	d.Payload = udp[link.UDPHeaderLen:]
	return d, nil
}

// parseIPv4 and parseIPv6 parse the header of a packet into d, and return its payload.
func parseIPv4(d *link.Datagram, b []byte) (udp []byte, err error) {
	if len(b) < link.IPv4HeaderLen {
		return nil, cannotf("a truncated IPv4 header of %d bytes", len(b))
	}
	length, flags := int(binary.BigEndian.Uint16(b[2:])), binary.BigEndian.Uint16(b[6:])
	switch {
	case b[0] != 0x45:
		return nil, cannotf("an IPv4 header of %d bytes", int(b[0]&0xf)*4)
	case length > len(b):
		return nil, cannotf("IPv4 length %d in a packet of %d bytes", length, len(b))
	case flags&^dontFragment != 0:
		return nil, cannotf("IPv4 flags and fragment offset %#04x", flags)
	case b[9] != protocolUDP:
		return nil, cannotf("IP protocol %d", b[9])
	case onesComplementSum(0, b[:link.IPv4HeaderLen]) != 0xffff:
		return nil, cannotf("a wrong IPv4 checksum, %#04x", binary.BigEndian.Uint16(b[10:]))
	}
	if flags == 0 {
		d.Variants |= link.MayFragment
	}
	if length < len(b) {
		d.Variants |= link.Padded
	}
	d.TClass, d.HopLimit, d.IPID = b[1], b[8], uint32(binary.BigEndian.Uint16(b[4:]))
	d.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:16])), 0)
	d.Dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:20])), 0)
	return b[link.IPv4HeaderLen:max(length, link.IPv4HeaderLen)], nil
}

func parseIPv6(d *link.Datagram, b []byte) (udp []byte, err error) {
	if len(b) < link.IPv6HeaderLen {
		return nil, cannotf("a truncated IPv6 header of %d bytes", len(b))
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	switch {
	case length > len(b)-link.IPv6HeaderLen:
		return nil, cannotf("IPv6 payload length %d with %d bytes", length, len(b)-link.IPv6HeaderLen)
	case length < len(b)-link.IPv6HeaderLen:
		d.Variants |= link.Padded
	}
	if b[6] != protocolUDP {
		return nil, cannotf("IPv6 next header %d", b[6])
	}
	head := binary.BigEndian.Uint32(b)
	d.TClass, d.FlowLabel, d.HopLimit = uint8(head>>20), head&flowLabel, b[7]
	src, dst := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	if src.Is4In6() || dst.Is4In6() {
		return nil, cannotf("IPv4 addresses mapped into an IPv6 packet, from %v to %v", src, dst)
	}
	d.Src, d.Dst = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
	return b[link.IPv6HeaderLen:][:length], nil
}

// onesComplementSum returns the one's complement sum of b, added to start.
func onesComplementSum(start uint32, b []byte) uint16 {
	s := uint64(start)
	for ; len(b) >= 4; b = b[4:] {
		s += uint64(binary.BigEndian.Uint32(b))
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) > 0 {
		s += uint64(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// pseudoHeaderSum returns the sum of the UDP pseudo-header.
func pseudoHeaderSum(src, dst netip.Addr, length int) uint32 {
	return uint32(onesComplementSum(0, src.AsSlice())) + uint32(onesComplementSum(0, dst.AsSlice())) + protocolUDP + uint32(length)
}
