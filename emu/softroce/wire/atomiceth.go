package wire

import "encoding/binary"

// AtomicETH is the Atomic Extended Transport Header. COMPARE_SWAP stores SwapAdd if the word
// equals Compare. FETCH_ADD adds SwapAdd; Compare should be 0 and is ignored.
type AtomicETH struct {
	VA      uint64
	RKey    uint32
	SwapAdd uint64
	Compare uint64
}

var errShortAtomicETH = shortError("AtomicETH", AtomicETHLen)

// Append appends h in wire order and returns the extended slice.
func (h AtomicETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	b = binary.BigEndian.AppendUint64(b, h.SwapAdd)
	return binary.BigEndian.AppendUint64(b, h.Compare)
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *AtomicETH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < AtomicETHLen {
		return nil, errShortAtomicETH
	}
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.SwapAdd = binary.BigEndian.Uint64(b[12:])
	h.Compare = binary.BigEndian.Uint64(b[20:])
	return b[AtomicETHLen:], nil
}
