package packet

import (
	"fmt"
	"net/netip"
)

// UDP is a UDP header.
type UDP struct {
	_       struct{} `size:"8"`
	SrcPort *uint16  `at:"0,16"`
	DstPort *uint16  `at:"2,16"`
	// Length is the length field: the actual length if nil.
	Length *uint16 `at:"4,16"`
	// Checksum is the checksum: the correct one if nil. RoCEv2 sends 0, no checksum.
	Checksum *uint16 `at:"6,16" fmt:"%#04x"`
}

// Append appends the datagram with this header and payload. It computes length and checksum if they
// are nil; the checksum covers the addresses of ip.
func (h UDP) Append(b []byte, ip IP, payload []byte) []byte {
	size := 8 + len(payload)
	h.Length = new(Get(h.Length, uint16(size)))
	if h.Checksum == nil { // AppendFields writes 0 for it, as the sum requires
		sum := Checksum(pseudoHeader(ip.Src, ip.Dst, ProtocolUDP, size), AppendFields(nil, h), payload)
		if sum == 0 { // 0 means no checksum
			sum = 0xffff
		}
		h.Checksum = &sum
	}
	return append(AppendFields(b, h), payload...)
}

// ParseUDP splits a datagram into header, payload (up to the length in the header), and the
// bytes after it. Payload and trailer alias b.
func ParseUDP(b []byte) (h UDP, payload, trailer []byte, err error) {
	rest, err := ParseFields(b, &h)
	if err != nil {
		return h, b, nil, err
	}
	n := int(*h.Length) - 8
	switch {
	case n < 0:
		return h, rest, nil, fmt.Errorf("UDP length %d is less than 8", *h.Length)
	case n > len(rest):
		return h, rest, nil, fmt.Errorf("UDP payload: %w: the header says %d bytes, there are %d", ErrShort, n, len(rest))
	}
	return h, rest[:n], rest[n:], nil
}

// Diff adds the fields of got that differ from the expected header h.
func (h UDP) Diff(d *Differences, got UDP) { DiffFields(d, "UDP ", h, got) }

// Checksum returns the Internet checksum (RFC 1071) of the concatenated parts. All but the
// last must have an even length.
func Checksum(parts ...[]byte) uint16 {
	var sum uint64
	for _, b := range parts {
		for i, c := range b {
			sum += uint64(c) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// pseudoHeader returns the pseudo-header of UDP and ICMPv6 checksums.
func pseudoHeader(src, dst netip.Addr, protocol uint8, length int) []byte {
	var b []byte
	if src.Is6() || dst.Is6() {
		s, d := addr16(src), addr16(dst)
		b = append(append(b, s[:]...), d[:]...)
		return append(b, byte(length>>24), byte(length>>16), byte(length>>8), byte(length), 0, 0, 0, protocol)
	}
	s, d := addr4(src), addr4(dst)
	b = append(append(b, s[:]...), d[:]...)
	return append(b, 0, protocol, byte(length>>8), byte(length))
}

// addr4 returns the bytes of an IPv4 address; zeros for any other.
func addr4(a netip.Addr) [4]byte {
	if a = a.Unmap(); a.Is4() {
		return a.As4()
	}
	return [4]byte{}
}

// addr16 returns the bytes of an address as an IPv6 address; zeros for an invalid one.
func addr16(a netip.Addr) [16]byte {
	if a.IsValid() {
		return a.As16()
	}
	return [16]byte{}
}
