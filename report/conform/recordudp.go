package conform

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
)

// unsummed is the comment of a file with filled-in checksums.
const unsummed = "fabrictest: every UDP checksum over IPv6 was 0 on the wire, as in RoCEv2 (IBTA A17.3.2.4); " +
	"Wireshark calls that illegal, so they are filled in here"

const (
	ipv6Header   = 40
	udpHeader    = 8
	nextHeaderAt = 6
	checksumAt   = 6
)

// udp6 returns the UDP datagram of an IPv6 packet without extension headers.
func udp6(b []byte) (datagram []byte, ok bool) {
	if len(b) < ipv6Header+udpHeader || b[0]>>4 != 6 || b[nextHeaderAt] != packet.ProtocolUDP {
		return nil, false
	}
	datagram = b[ipv6Header:]
	n := int(binary.BigEndian.Uint16(datagram[4:]))
	if n < udpHeader || n > len(datagram) {
		return nil, false
	}
	return datagram[:n], true
}

// allUnsummed reports whether all UDP datagrams over IPv6, at least one, have no checksum.
func allUnsummed(events []conformance.Event) (some bool) {
	for i := range events {
		if u, ok := udp6(events[i].Data); ok && events[i].Stream == 0 {
			if binary.BigEndian.Uint16(u[checksumAt:]) != 0 {
				return false
			}
			some = true
		}
	}
	return some
}

// withChecksum fills in the UDP checksum of a UDP packet over IPv6. Its checksum field must
// be zero.
func withChecksum(b []byte) []byte {
	u, ok := udp6(b)
	if !ok {
		return b
	}
	b = slices.Clone(b)
	u = b[ipv6Header:][:len(u)]
	pseudo := slices.Clone(b[8:ipv6Header])
	pseudo = append(binary.BigEndian.AppendUint32(pseudo, uint32(len(u))), 0, 0, 0, packet.ProtocolUDP)
	sum := packet.Checksum(pseudo, u)
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(u[checksumAt:], sum)
	return b
}
