package wire

import "encoding/binary"

// Placement is the placement type of a FLUSH. Its bits combine.
type Placement uint8

// The placement types of Annex A19.
const (
	PlacementGlobal     Placement = 1 // visible to all requesters and the host
	PlacementPersistent Placement = 2 // persistent
)

// Selectivity is the selectivity level of a FLUSH.
type Selectivity uint8

// The selectivity levels of Annex A19.
const (
	SelectivityRange  Selectivity = 0 // the range that the RETH names
	SelectivityRegion Selectivity = 1 // the whole memory region of its R_Key
)

// FETH is the Flush Extended Transport Header.
//
//	31-6 reserved | 5-4 selectivity | 3-0 placement
type FETH struct {
	Placement   Placement
	Selectivity Selectivity
	Reserved    uint32 // 26 bits
}

var errShortFETH = shortError("FETH", FETHLen)

// Append appends h in wire order and returns the extended slice.
func (h FETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b,
		h.Reserved<<6|uint32(h.Selectivity&3)<<4|uint32(h.Placement&0x0F))
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *FETH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < FETHLen {
		return nil, errShortFETH
	}
	v := binary.BigEndian.Uint32(b)
	h.Placement = Placement(v & 0x0F)
	h.Selectivity = Selectivity(v >> 4 & 3)
	h.Reserved = v >> 6
	return b[FETHLen:], nil
}
