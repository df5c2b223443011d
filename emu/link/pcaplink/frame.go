package pcaplink

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

const (
	maxIPBytes      = 1<<16 - 1
	protocolTCP     = 6
	protocolUDP     = 17
	dontFragment    = 0x4000
	defaultHopLimit = 64
	etherTypeIPv4   = 0x0800
	etherTypeIPv6   = 0x86dd
)

// appendFrame appends the packet of a UDP datagram with all headers to b.
func (f Framing) appendFrame(b []byte, d *link.Datagram) []byte {
	b = f.appendIP(b, d, protocolUDP, link.UDPHeaderLen+len(d.Payload))
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, d.Src.Port())
	b = binary.BigEndian.AppendUint16(b, d.Dst.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(link.UDPHeaderLen+len(d.Payload)))
	b = append(b, 0, 0) // checksum, filled in below
	b = append(b, d.Payload...)
	if d.Variants&link.NoChecksum == 0 || !d.Is4() { // IPv6 requires a checksum
		binary.BigEndian.PutUint16(b[start+6:], udpChecksum(b[start:], d))
	}
	return b
}

// udpChecksum returns the checksum of a UDP header with payload, whose checksum field is zero. d has
// the IP addresses.
func udpChecksum(datagram []byte, d *link.Datagram) uint16 {
	if c := foldSum(pseudoSum(d.Src.Addr(), d.Dst.Addr(), protocolUDP, len(datagram)) + sumWords(datagram)); c != 0 {
		return c
	}
	return 0xffff // 0 would mean no checksum
}

// pseudoSum returns the sum of the 16-bit words of the pseudo-header that TCP and UDP checksums
// cover. length is that of the TCP or UDP header and payload.
func pseudoSum(src, dst netip.Addr, protocol byte, length int) uint32 {
	total := uint32(protocol) + uint32(length)
	for _, a := range []netip.Addr{src, dst} {
		if dst.Unmap().Is4() {
			ip := as4(a)
			total += sumWords(ip[:])
		} else {
			ip := as16(a)
			total += sumWords(ip[:])
		}
	}
	return total
}

// appendIP appends the IP header, and the Ethernet header if the framing has one, of a
// packet with the addresses and fields of d and a payload of length bytes.
func (f Framing) appendIP(b []byte, d *link.Datagram, protocol byte, length int) []byte {
	if f == Ethernet {
		b = appendEthernet(b, d)
	}
	if d.Is4() {
		return appendIPv4(b, d, protocol, length)
	}
	return appendIPv6(b, d, protocol, length)
}

// appendIPv4 appends an IPv4 header with the fields of d. length is that of the IP payload.
func appendIPv4(b []byte, d *link.Datagram, protocol byte, length int) []byte {
	start := len(b)
	id := uint16(0)
	if d.IPID < link.IPIDUnknown {
		id = uint16(d.IPID)
	}
	b = append(b, 0x45, d.TClass) // version 4, header of five 32-bit words
	b = binary.BigEndian.AppendUint16(b, uint16(link.IPv4HeaderLen+length))
	b = binary.BigEndian.AppendUint16(b, id)
	b = binary.BigEndian.AppendUint16(b, dontFragment)
	b = append(b, hopLimit(d), protocol, 0, 0)
	src, dst := as4(d.Src.Addr()), as4(d.Dst.Addr())
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	binary.BigEndian.PutUint16(b[start+10:], checksum(b[start:]))
	return b
}

// appendIPv6 appends an IPv6 header with the fields of d. length is that of the IP payload.
func appendIPv6(b []byte, d *link.Datagram, protocol byte, length int) []byte {
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(d.TClass)<<20|d.FlowLabel&0xfffff)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(b, protocol, hopLimit(d))
	src, dst := as16(d.Src.Addr()), as16(d.Dst.Addr())
	b = append(b, src[:]...)
	return append(b, dst[:]...)
}

// appendEthernet appends an Ethernet header for the IP packet of d.
func appendEthernet(b []byte, d *link.Datagram) []byte {
	b = appendMAC(b, d.Dst.Addr())
	b = appendMAC(b, d.Src.Addr())
	if d.Is4() {
		return binary.BigEndian.AppendUint16(b, etherTypeIPv4)
	}
	return binary.BigEndian.AppendUint16(b, etherTypeIPv6)
}

// appendMAC appends the MAC address for an IP address: that of the multicast group, or a made-up one,
// locally administered and ending in the last four bytes of the IP address.
func appendMAC(b []byte, a netip.Addr) []byte {
	a = a.Unmap()
	ip := as16(a)
	switch {
	case a.IsMulticast() && a.Is4():
		return append(b, 0x01, 0x00, 0x5e, ip[13]&0x7f, ip[14], ip[15])
	case a.IsMulticast():
		return append(b, 0x33, 0x33, ip[12], ip[13], ip[14], ip[15])
	}
	return append(b, 0x02, 0x00, ip[12], ip[13], ip[14], ip[15])
}

// hopLimit returns the hop limit of d, or the default if d has none.
func hopLimit(d *link.Datagram) uint8 {
	if d.HopLimit == 0 {
		return defaultHopLimit
	}
	return d.HopLimit
}

// as4 returns the bytes of an IPv4 or IPv4-mapped address; zeros for other addresses.
func as4(a netip.Addr) [4]byte {
	if a = a.Unmap(); a.Is4() {
		return a.As4()
	}
	return [4]byte{}
}

// as16 returns the bytes of an address; zeros if it is invalid.
func as16(a netip.Addr) [16]byte {
	if a.IsValid() {
		return a.As16()
	}
	return [16]byte{}
}

// checksum returns the Internet checksum of b, whose checksum field is zero.
func checksum(b []byte) uint16 { return foldSum(sumWords(b)) }

// sumWords returns the sum of the big-endian 16-bit words of b, which is shorter than 64 KiB, so that
// the sum does not overflow. An odd last byte is the upper byte of a word.
func sumWords(b []byte) (sum uint32) {
	for ; len(b) >= 8; b = b[8:] {
		v := binary.BigEndian.Uint64(b)
		sum += uint32(v>>48) + uint32(v>>32&0xffff) + uint32(v>>16&0xffff) + uint32(v&0xffff)
	}
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return sum
}

// foldSum returns the Internet checksum of a sum of 16-bit words: it adds the carries, and inverts
// the result.
func foldSum(sum uint32) uint16 {
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// tcpWindow is the window in every segment. The real one is not known.
const tcpWindow = 0xffff

// WriteSegment adds a TCP segment that passed the interface at now. Its Seq and Ack are relative to
// initial sequence numbers that follow from the addresses, so that both ends of a stream capture the
// same ones.
func (i *Interface) WriteSegment(now mono.Time, dir Direction, s *link.Segment) {
	c := i.capture
	if s.IPBytes() > maxIPBytes {
		c.file.Fail(fmt.Errorf("a segment of %d bytes does not fit in an IP packet", len(s.Payload)))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame = c.framing.appendSegment(c.frame[:0], s)
	c.file.Write(Packet{Interface: i.id, At: time.Duration(now), Bytes: c.frame, Flags: &flags[dir]})
}

// appendSegment appends the packet of a TCP segment with all headers to b.
func (f Framing) appendSegment(b []byte, s *link.Segment) []byte {
	length := link.TCPHeaderLen + len(s.Payload)
	b = f.appendIP(b, &link.Datagram{Src: s.Src, Dst: s.Dst}, protocolTCP, length)
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, s.Src.Port())
	b = binary.BigEndian.AppendUint16(b, s.Dst.Port())
	b = binary.BigEndian.AppendUint32(b, initialSeq(s.Src, s.Dst)+uint32(s.Seq))
	ack := uint32(0)
	if s.Flags&link.ACK != 0 {
		ack = initialSeq(s.Dst, s.Src) + uint32(s.Ack)
	}
	b = binary.BigEndian.AppendUint32(b, ack)
	b = append(b, link.TCPHeaderLen/4<<4, byte(s.Flags))
	b = binary.BigEndian.AppendUint16(b, tcpWindow)
	b = append(b, 0, 0, 0, 0) // checksum (filled in below) and urgent pointer
	b = append(b, s.Payload...)
	binary.BigEndian.PutUint16(b[start+16:], tcpChecksum(b[start:], s))
	return b
}

// initialSeq returns the sequence number of the SYN from src to dst: a hash of both addresses.
func initialSeq(src, dst netip.AddrPort) uint32 {
	h := fnv.New32a()
	for _, a := range []netip.AddrPort{src, dst} {
		ip := as16(a.Addr())
		_, _ = h.Write(append(ip[:], byte(a.Port()>>8), byte(a.Port()))) // never fails
	}
	return h.Sum32()
}

// tcpChecksum returns the checksum of a TCP header with payload, whose checksum field is zero. s has
// the IP addresses.
func tcpChecksum(segment []byte, s *link.Segment) uint16 {
	return foldSum(pseudoSum(s.Src.Addr(), s.Dst.Addr(), protocolTCP, len(segment)) + sumWords(segment))
}
