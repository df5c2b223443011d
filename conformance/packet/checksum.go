package packet

import "net/netip"

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

// addr4 and addr16 return the bytes of an address; zeros for an invalid one.
func addr4(a netip.Addr) [4]byte {
	if a = a.Unmap(); a.Is4() {
		return a.As4()
	}
	return [4]byte{}
}

func addr16(a netip.Addr) [16]byte {
	if a.IsValid() {
		return a.As16()
	}
	return [16]byte{}
}
