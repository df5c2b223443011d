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
	defaultHopLimit = 64
)

// appendFrame appends the packet of a UDP datagram with all headers to b.
func (f Framing) appendFrame(b []byte, d *link.Datagram) []byte {
	sent := *d
	if !d.Is4() { // IPv6 requires a checksum
		sent.Variants &^= link.NoChecksum
	}
	if sent.HopLimit == 0 {
		sent.HopLimit = defaultHopLimit
	}
	return link.AppendUDP(f.appendEthernet(b, d), &sent)
}

// appendEthernet appends the Ethernet header for the IP packet of d, if the framing has one.
func (f Framing) appendEthernet(b []byte, d *link.Datagram) []byte {
	if f != Ethernet {
		return b
	}
	b = appendMAC(b, d.Dst.Addr())
	b = appendMAC(b, d.Src.Addr())
	if d.Is4() {
		return binary.BigEndian.AppendUint16(b, link.EtherTypeIPv4)
	}
	return binary.BigEndian.AppendUint16(b, link.EtherTypeIPv6)
}

// appendMAC appends the MAC address for an IP address: that of the multicast group, or a made-up
// one, locally administered and ending in the last four bytes of the IP address.
func appendMAC(b []byte, a netip.Addr) []byte {
	a = a.Unmap()
	ip := a.As16()
	switch {
	case a.IsMulticast() && a.Is4():
		return append(b, 0x01, 0x00, 0x5e, ip[13]&0x7f, ip[14], ip[15])
	case a.IsMulticast():
		return append(b, 0x33, 0x33, ip[12], ip[13], ip[14], ip[15])
	}
	return append(b, 0x02, 0x00, ip[12], ip[13], ip[14], ip[15])
}

// tcpWindow is the window in every segment. The real one is not known.
const tcpWindow = 0xffff

// WriteSegment adds a TCP segment that passed the interface at now. Its Seq and Ack are relative to
// initial sequence numbers that follow from the addresses, so that captures of both ends of a
// stream have the same sequence numbers.
func (i *Interface) WriteSegment(now mono.Time, dir Direction, s *link.Segment) {
	c := i.capture
	if s.IPBytes() > maxIPBytes {
		c.file.Fail(fmt.Errorf("a segment of %d bytes does not fit in an IP packet", len(s.Payload)))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame = c.framing.appendSegment(c.frame[:0], s)
	c.file.Write(Packet{Interface: i.id, At: time.Duration(now), Bytes: c.frame, Direction: directions[dir]})
}

// appendSegment appends the packet of a TCP segment with all headers to b.
func (f Framing) appendSegment(b []byte, s *link.Segment) []byte {
	length := link.TCPHeaderLen + len(s.Payload)
	d := link.Datagram{Src: s.Src, Dst: s.Dst, HopLimit: defaultHopLimit}
	b = link.AppendIP(f.appendEthernet(b, &d), &d, link.ProtocolTCP, length)
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, s.Src.Port())
	b = binary.BigEndian.AppendUint16(b, s.Dst.Port())
	b = binary.BigEndian.AppendUint32(b, initialSeq(s.Src, s.Dst)+uint32(s.Seq))
	ack := uint32(0)
	if s.Flags&link.ACK != 0 {
		ack = initialSeq(s.Dst, s.Src) + uint32(s.Ack)
	}
	b = binary.BigEndian.AppendUint32(b, ack)
	const dataOffset = link.TCPHeaderLen / 4 << 4 // in 32-bit words, in the upper four bits
	b = append(b, dataOffset, byte(s.Flags))
	b = binary.BigEndian.AppendUint16(b, tcpWindow)
	checksum := len(b)
	b = append(b, 0, 0, 0, 0) // checksum (filled in below) and urgent pointer
	b = append(b, s.Payload...)
	binary.BigEndian.PutUint16(b[checksum:], link.TransportChecksum(s.Src.Addr(), s.Dst.Addr(), link.ProtocolTCP, b[start:]))
	return b
}

// initialSeq returns the sequence number of the SYN from src to dst: a hash of both addresses.
func initialSeq(src, dst netip.AddrPort) uint32 {
	h := fnv.New32a()
	for _, a := range []netip.AddrPort{src, dst} {
		ip := a.Addr().As16()
		_, _ = h.Write(append(ip[:], byte(a.Port()>>8), byte(a.Port()))) // never fails
	}
	return h.Sum32()
}
