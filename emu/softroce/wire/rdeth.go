package wire

import "encoding/binary"

// RDETH is the Reliable Datagram Extended Transport Header: the end-to-end context. No known
// device supports RD; the codec has it for captures.
type RDETH struct {
	EEContext uint32 // 24 bits
	Reserved  uint8  // byte 0
}

var errShortRDETH = shortError("RDETH", RDETHLen)

// Append appends h in wire order and returns the extended slice.
func (h RDETH) Append(b []byte) []byte {
	return appendReserved8And24(b, h.Reserved, h.EEContext)
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *RDETH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < RDETHLen {
		return nil, errShortRDETH
	}
	h.Reserved = b[0]
	h.EEContext = binary.BigEndian.Uint32(b) & mask24
	return b[RDETHLen:], nil
}
