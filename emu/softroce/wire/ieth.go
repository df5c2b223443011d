package wire

import "encoding/binary"

// IETH is the Invalidate Extended Transport Header: the R_Key that a SEND with invalidate
// invalidates.
type IETH struct {
	RKey uint32
}

var errShortIETH = shortError("IETH", IETHLen)

// Append appends h in wire order and returns the extended slice.
func (h IETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, h.RKey)
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *IETH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < IETHLen {
		return nil, errShortIETH
	}
	h.RKey = binary.BigEndian.Uint32(b)
	return b[IETHLen:], nil
}
