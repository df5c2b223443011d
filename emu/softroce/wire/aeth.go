package wire

import "encoding/binary"

// AETH is the ACK Extended Transport Header: a syndrome, and the number of requests that
// the responder has completed.
type AETH struct {
	Syndrome Syndrome
	MSN      MSN
}

var errShortAETH = shortError("AETH", AETHLen)

// Append appends h in wire order and returns the extended slice.
func (h AETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h.Syndrome)<<24|uint32(h.MSN&MSNMask))
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *AETH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < AETHLen {
		return nil, errShortAETH
	}
	h.Syndrome = Syndrome(b[0])
	h.MSN = MSN(binary.BigEndian.Uint32(b)) & MSNMask
	return b[AETHLen:], nil
}
