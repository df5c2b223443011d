package packet

import "fmt"

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

// WithoutComputed returns h without length and checksum, which building then computes.
func (h UDP) WithoutComputed() UDP {
	h.Length, h.Checksum = nil, nil
	return h
}

// Append appends the datagram with this header and payload; the checksum covers ip.
func (h UDP) Append(b []byte, ip IP, payload []byte) []byte {
	size := 8 + len(payload)
	h.Length = new(Get(h.Length, uint16(size)))
	if h.Checksum == nil {
		h.Checksum = new(uint16(0))
		sum := Checksum(pseudoHeader(ip.Src, ip.Dst, ProtocolUDP, size), AppendFields(nil, h), payload)
		if sum == 0 { // 0 means no checksum
			sum = 0xffff
		}
		h.Checksum = &sum
	}
	return append(AppendFields(b, h), payload...)
}

// ParseUDP splits a datagram into header, payload by the length in the header, and
// trailer. Payload and trailer alias b.
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
