package wire

import "encoding/binary"

// AtomicAckETH carries the value of the word before an atomic operation.
type AtomicAckETH struct {
	Original uint64
}

var errShortAtomicAckETH = shortError("AtomicAckETH", AtomicAckETHLen)

// Append appends h in wire order and returns the extended slice.
func (h AtomicAckETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, h.Original)
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *AtomicAckETH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < AtomicAckETHLen {
		return nil, errShortAtomicAckETH
	}
	h.Original = binary.BigEndian.Uint64(b)
	return b[AtomicAckETHLen:], nil
}
