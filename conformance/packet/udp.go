package packet

import "fmt"

// UDP is the header of a datagram.
type UDP struct {
	_       struct{} `size:"8"`
	SrcPort *uint16  `at:"0,16"`
	DstPort *uint16  `at:"2,16"`
	// Length is that of header and payload: what there is.
	Length *uint16 `at:"4,16"`
	// Checksum is the right one. RoCEv2 sends 0, which means that there is none.
	Checksum *uint16 `at:"6,16" fmt:"%#04x"`
}

// Fresh returns h without length and checksum, so that building computes them.
func (h UDP) Fresh() UDP {
	h.Length, h.Checksum = nil, nil
	return h
}

// Append appends the datagram with this header and payload, as it is within a packet
// with the header ip.
func (h UDP) Append(b []byte, ip IP, payload []byte) []byte {
	size := 8 + len(payload)
	h.Length = new(Get(h.Length, uint16(size)))
	if h.Checksum == nil {
		h.Checksum = new(uint16(0))
		sum := Checksum(pseudoHeader(ip.Src, ip.Dst, ProtocolUDP, size), AppendFields(nil, h), payload)
		if sum == 0 { // which would say that there is none
			sum = 0xffff
		}
		h.Checksum = &sum
	}
	return append(AppendFields(b, h), payload...)
}

// ParseUDP takes a datagram apart: its header, what the header's length says is its
// payload, and what comes behind that. Payload and trailer are parts of b.
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

// Diff adds to d where the header got is not as h, the expected one, says.
func (h UDP) Diff(d *Differences, got UDP) { DiffFields(d, "UDP ", h, got) }
