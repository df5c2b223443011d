package link

import "net/netip"

// Segment is one TCP segment, as a capture shows it.
type Segment struct {
	Src, Dst netip.AddrPort
	// Seq and Ack count from the beginning of each direction: a SYN is at 0, the
	// first byte at 1, and a FIN takes one.
	Seq, Ack uint64
	Flags    SegmentFlags
	Payload  []byte
}

// SegmentFlags are those of TCP, each where its header has it.
type SegmentFlags uint8

// The flags.
const (
	FIN SegmentFlags = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Is4 reports whether the segment travels over IPv4.
func (s *Segment) Is4() bool {
	a := s.Dst.Addr()
	return a.Is4() || a.Is4In6()
}

// IPBytes returns the length of the IP packet that carries the segment.
func (s *Segment) IPBytes() int {
	if s.Is4() {
		return IPv4HeaderLen + TCPHeaderLen + len(s.Payload)
	}
	return IPv6HeaderLen + TCPHeaderLen + len(s.Payload)
}
