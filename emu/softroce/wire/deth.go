package wire

import "encoding/binary"

// DETH is the Datagram Extended Transport Header: the source QP, and the Q_Key of the
// destination.
type DETH struct {
	QKey     uint32
	SrcQP    uint32 // 24 bits
	Reserved uint8  // byte 4
}

var errShortDETH = shortError("DETH", DETHLen)

// Append appends h in wire order and returns the extended slice.
func (h DETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.QKey)
	return appendReserved8And24(b, h.Reserved, h.SrcQP)
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *DETH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < DETHLen {
		return nil, errShortDETH
	}
	h.QKey = binary.BigEndian.Uint32(b)
	h.Reserved = b[4]
	h.SrcQP = binary.BigEndian.Uint32(b[4:]) & mask24
	return b[DETHLen:], nil
}

// appendReserved8And24 appends a reserved byte and a 24-bit number, as in DETH, XRCETH and
// RDETH.
func appendReserved8And24(b []byte, reserved uint8, number uint32) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(reserved)<<24|number&mask24)
}
