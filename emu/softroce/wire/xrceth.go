package wire

import "encoding/binary"

// XRCETH is the XRC Extended Transport Header: the shared receive queue of a request.
type XRCETH struct {
	SRQN     uint32 // 24 bits
	Reserved uint8  // byte 0
}

var errShortXRCETH = shortError("XRCETH", XRCETHLen)

// Append appends h in wire order and returns the extended slice.
func (h XRCETH) Append(b []byte) []byte {
	return appendReserved8And24(b, h.Reserved, h.SRQN)
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *XRCETH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < XRCETHLen {
		return nil, errShortXRCETH
	}
	h.Reserved = b[0]
	h.SRQN = binary.BigEndian.Uint32(b) & mask24
	return b[XRCETHLen:], nil
}
