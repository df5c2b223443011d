package link

// Links carry datagrams without headers. Captures, switches and packet sockets need packets: the
// functions of this file build and read IP and UDP headers, and compute Internet checksums.

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// IP protocol numbers.
const (
	ProtocolTCP = 6
	ProtocolUDP = 17
)

// EtherTypes.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeIPv6 = 0x86dd
)

// DontFragment is the DF flag in the flags and fragment offset of IPv4.
const DontFragment = 0x4000

// FlowLabelMask are the bits of the IPv6 flow label in the first word of the header.
const FlowLabelMask = 1<<20 - 1

// AppendUDP appends the IP packet of d, with a UDP checksum unless d.Variants has NoChecksum.
func AppendUDP(b []byte, d *Datagram) []byte {
	length := UDPHeaderLen + len(d.Payload)
	b = AppendIP(b, d, ProtocolUDP, length)
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, d.Src.Port())
	b = binary.BigEndian.AppendUint16(b, d.Dst.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(append(b, 0, 0), d.Payload...) // checksum 0, set below
	if d.Variants&NoChecksum == 0 {
		binary.BigEndian.PutUint16(b[start+6:], TransportChecksum(d.Src.Addr(), d.Dst.Addr(), ProtocolUDP, b[start:]))
	}
	return b
}

// AppendIP appends an IP header with the addresses and fields of d, for a payload of length bytes.
func AppendIP(b []byte, d *Datagram, protocol byte, length int) []byte {
	start := len(b)
	if !d.Is4() {
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(d.TClass)<<20|d.FlowLabel&FlowLabelMask)
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, protocol, d.HopLimit)
		src, dst := d.Src.Addr().As16(), d.Dst.Addr().As16()
		return append(append(b, src[:]...), dst[:]...)
	}
	flags := uint16(DontFragment)
	if d.Variants&MayFragment != 0 {
		flags = 0
	}
	b = append(b, 0x45, d.TClass) // version 4, header of five 32-bit words
	b = binary.BigEndian.AppendUint16(b, uint16(IPv4HeaderLen+length))
	b = binary.BigEndian.AppendUint16(b, uint16(d.IPID)) // 0 for IPIDUnknown
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, d.HopLimit, protocol, 0, 0) // checksum 0, set below
	src, dst := as4(d.Src.Addr()), as4(d.Dst.Addr())
	b = append(append(b, src[:]...), dst[:]...)
	binary.BigEndian.PutUint16(b[start+10:], Checksum(b[start:]))
	return b
}

// as4 returns the bytes of an IPv4 or IPv4-mapped address; zeros for other addresses.
func as4(a netip.Addr) [4]byte {
	if a = a.Unmap(); a.Is4() {
		return a.As4()
	}
	return [4]byte{}
}

// ReadIP sets d to the addresses and fields of a complete IP header. The ports and Variants are 0.
func ReadIP(header []byte, d *Datagram) {
	if header[0]>>4 == 6 {
		word := binary.BigEndian.Uint32(header)
		*d = Datagram{TClass: uint8(word >> 20), FlowLabel: word & FlowLabelMask, HopLimit: header[7]}
	} else {
		*d = Datagram{TClass: header[1], HopLimit: header[8], IPID: uint32(binary.BigEndian.Uint16(header[4:]))}
	}
	src, dst := IPAddrs(header)
	d.Src, d.Dst = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
}

// IPAddrs returns the source and the destination in an IP header, which must be complete.
func IPAddrs(header []byte) (src, dst netip.Addr) {
	if header[0]>>4 == 6 {
		return netip.AddrFrom16([16]byte(header[8:])), netip.AddrFrom16([16]byte(header[24:]))
	}
	return netip.AddrFrom4([4]byte(header[12:])), netip.AddrFrom4([4]byte(header[16:]))
}

// Checksum returns the Internet checksum (RFC 1071) of b; 0 if b has a correct checksum field.
func Checksum(b []byte) uint16 { return ^FoldSum(SumWords(0, b)) }

// TransportChecksum returns the checksum of b, a UDP datagram or TCP segment whose checksum field
// is 0. For UDP it is never 0, which would mean no checksum.
func TransportChecksum(src, dst netip.Addr, protocol byte, b []byte) uint16 {
	check := ^FoldSum(SumWords(PseudoHeaderSum(src, dst, protocol, len(b)), b))
	if check == 0 && protocol == ProtocolUDP {
		return 0xffff
	}
	return check
}

// PseudoHeaderSum returns the sum (see SumWords) of the pseudo-header of a TCP or UDP checksum:
// that of IPv4 if dst is an IPv4 address, else that of IPv6. length counts the TCP or UDP header
// and the payload.
func PseudoHeaderSum(src, dst netip.Addr, protocol byte, length int) uint64 {
	sum := uint64(protocol) + uint64(length)
	for _, a := range [...]netip.Addr{src, dst} {
		if dst.Unmap().Is4() {
			ip := as4(a)
			sum = SumWords(sum, ip[:])
		} else {
			ip := a.As16()
			sum = SumWords(sum, ip[:])
		}
	}
	return sum
}

// SumWords adds the 64-bit words of b to a ones' complement sum, with end-around carry. FoldSum
// reduces the sum to the 16 bits of an Internet checksum. Bytes that are missing in the last word
// count as 0.
func SumWords(sum uint64, b []byte) uint64 {
	var carry uint64
	for ; len(b) >= 8; b = b[8:] {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
	}
	sum, carry = bits.Add64(sum, carry, 0)
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		var c uint64
		sum, c = bits.Add64(sum, binary.BigEndian.Uint64(last[:]), 0)
		carry += c
	}
	sum, carry = bits.Add64(sum, carry, 0)
	return sum + carry
}

// FoldSum reduces a result of SumWords to 16 bits.
func FoldSum(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum>>16 + sum&0xffff)
}
