package link

import "net/netip"

// Segment is a TCP segment of a capture.
type Segment struct {
	Src, Dst netip.AddrPort
	// Seq and Ack are relative sequence numbers: the SYN is 0, the first byte 1, and a FIN
	// counts as one byte.
	Seq, Ack uint64
	Flags    SegmentFlags
	Payload  []byte
}

// SegmentFlags are the flags of the TCP header, with its bit values.
type SegmentFlags uint8

// The flags.
const (
	FIN SegmentFlags = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Is4 reports whether the segment is sent over IPv4.
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
