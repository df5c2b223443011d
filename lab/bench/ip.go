package bench

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/link"
)

// cannotCarryf returns an error for a packet that a simulated wire cannot carry.
func cannotCarryf(format string, args ...any) error {
	return fmt.Errorf("a simulated wire carries only valid UDP datagrams: %w: %s", conformance.ErrBenchCannot, fmt.Sprintf(format, args...))
}

// parsePacket parses an IP packet with a UDP datagram, whose payload is not copied. It fails for a
// packet that a simulated wire cannot carry, such as one with a wrong checksum. Padding after the
// packet only sets link.Padded.
func parsePacket(b []byte) (d link.Datagram, err error) {
	if len(b) == 0 {
		return d, cannotCarryf("the packet is empty")
	}
	var udp []byte
	switch version := b[0] >> 4; version {
	case 4:
		udp, err = parseIPv4(&d, b)
	case 6:
		udp, err = parseIPv6(&d, b)
	default:
		return d, cannotCarryf("IP version %d", version)
	}
	if err != nil {
		return d, err
	}
	if d.HopLimit == 0 {
		return d, cannotCarryf("a hop limit of 0")
	}
	if len(udp) < link.UDPHeaderLen {
		return d, cannotCarryf("a UDP header of %d bytes", len(udp))
	}
	if length := int(binary.BigEndian.Uint16(udp[4:])); length != len(udp) {
		return d, cannotCarryf("UDP length %d with %d bytes", length, len(udp))
	}
	if binary.BigEndian.Uint16(udp[6:]) == 0 {
		d.Variants |= link.NoChecksum
	} else if link.FoldSum(link.SumWords(link.PseudoHeaderSum(d.Src.Addr(), d.Dst.Addr(), link.ProtocolUDP, len(udp)), udp)) != 0xffff {
		return d, cannotCarryf("a wrong UDP checksum, %#04x", binary.BigEndian.Uint16(udp[6:]))
	}
	d.Src = netip.AddrPortFrom(d.Src.Addr(), binary.BigEndian.Uint16(udp))
	d.Dst = netip.AddrPortFrom(d.Dst.Addr(), binary.BigEndian.Uint16(udp[2:]))
	d.Payload = udp[link.UDPHeaderLen:]
	return d, nil
}

// parseIPv4 parses the IPv4 header of a packet into d, and returns the UDP datagram. A simulated
// wire cannot carry options and fragments.
func parseIPv4(d *link.Datagram, b []byte) (udp []byte, err error) {
	if len(b) < link.IPv4HeaderLen {
		return nil, cannotCarryf("a truncated IPv4 header of %d bytes", len(b))
	}
	length, flags := int(binary.BigEndian.Uint16(b[2:])), binary.BigEndian.Uint16(b[6:])
	switch {
	case b[0] != 0x45:
		return nil, cannotCarryf("an IPv4 header of %d bytes", int(b[0]&0xf)*4)
	case length > len(b):
		return nil, cannotCarryf("IPv4 length %d in a packet of %d bytes", length, len(b))
	case flags&^link.DontFragment != 0:
		return nil, cannotCarryf("IPv4 flags and fragment offset %#04x", flags)
	case b[9] != link.ProtocolUDP:
		return nil, cannotCarryf("IP protocol %d", b[9])
	case link.Checksum(b[:link.IPv4HeaderLen]) != 0:
		return nil, cannotCarryf("a wrong IPv4 checksum, %#04x", binary.BigEndian.Uint16(b[10:]))
	}
	link.ReadIP(b, d)
	if flags == 0 {
		d.Variants |= link.MayFragment
	}
	if length < len(b) {
		d.Variants |= link.Padded
	}
	end := max(length, link.IPv4HeaderLen) // parsePacket refuses the empty datagram of a shorter length
	return b[link.IPv4HeaderLen:end], nil
}

// parseIPv6 parses the IPv6 header of a packet into d, and returns the UDP datagram.
func parseIPv6(d *link.Datagram, b []byte) (udp []byte, err error) {
	if len(b) < link.IPv6HeaderLen {
		return nil, cannotCarryf("a truncated IPv6 header of %d bytes", len(b))
	}
	link.ReadIP(b, d)
	length := int(binary.BigEndian.Uint16(b[4:]))
	switch {
	case length > len(b)-link.IPv6HeaderLen:
		return nil, cannotCarryf("IPv6 payload length %d with %d bytes", length, len(b)-link.IPv6HeaderLen)
	case length < len(b)-link.IPv6HeaderLen:
		d.Variants |= link.Padded
	}
	if b[6] != link.ProtocolUDP {
		return nil, cannotCarryf("IPv6 next header %d", b[6])
	}
	if d.Src.Addr().Is4In6() || d.Dst.Addr().Is4In6() {
		return nil, cannotCarryf("IPv4 addresses mapped into an IPv6 packet, from %v to %v", d.Src.Addr(), d.Dst.Addr())
	}
	return b[link.IPv6HeaderLen:][:length], nil
}
