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

// tcpWindow is the window in every segment. The real one is not known.
const tcpWindow = 0xffff

// WriteSegment adds a TCP segment that passed the interface at now. Initial sequence
// numbers follow from the addresses, so that both ends of a stream capture the same ones.
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

// appendSegment appends the packet of s with all headers.
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

// initialSeq is the sequence number of the SYN from src to dst.
func initialSeq(src, dst netip.AddrPort) uint32 {
	h := fnv.New32a()
	for _, a := range []netip.AddrPort{src, dst} {
		ip := as16(a.Addr())
		_, _ = h.Write(append(ip[:], byte(a.Port()>>8), byte(a.Port()))) // never fails
	}
	return h.Sum32()
}

// tcpChecksum is the checksum of a TCP segment whose checksum field is zero.
func tcpChecksum(segment []byte, s *link.Segment) uint16 {
	return foldSum(pseudoSum(s.Src.Addr(), s.Dst.Addr(), protocolTCP, len(segment)) + sumWords(segment))
}
