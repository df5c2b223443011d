package wire

import (
	"encoding/binary"
	"fmt"
)

// AtomicOp is the operation of an Atomic Request.
type AtomicOp uint8

// The atomic operations. 1 is reserved.
const (
	AtomicFetchAdd    AtomicOp = 0
	AtomicCompareSwap AtomicOp = 2
)

// String prints the operation's name.
func (o AtomicOp) String() string {
	switch o {
	case AtomicFetchAdd:
		return "FetchAdd"
	case AtomicCompareSwap:
		return "CmpSwap"
	}
	return fmt.Sprintf("atomic operation %d", uint8(o))
}

// AtomicRequest is the header of an Atomic Request (RFC 7306, section 5.1).
type AtomicRequest struct {
	Reserved  uint32   // 28 bits
	Op        AtomicOp // four bits
	RequestID uint32   // repeated in the response
	STag      STag
	TO        uint64 // of the word, a multiple of eight
	// AddSwap is the value that FetchAdd adds or CmpSwap stores. Bits of AddSwapMask are the
	// top bits of separate fields for FetchAdd, out of which no carry goes, and the bits that
	// are stored for CmpSwap.
	AddSwap, AddSwapMask uint64
	// CmpSwap compares the bits of CompareMask with Compare. FetchAdd sends all ones and 0.
	Compare, CompareMask uint64
}

// AtomicResponse is the header of an Atomic Response. It has 12 octets, as in figure 6 of
// RFC 7306; section 4 says 32.
type AtomicResponse struct {
	RequestID uint32 // of the request
	Original  uint64 // the word before the operation
}

var (
	errShortAtomicRequest  = shortError("Atomic Request", AtomicRequestLen)
	errShortAtomicResponse = shortError("Atomic Response", AtomicResponseLen)
)

// Append appends h in wire order and returns the extended slice. Bits that a
// field does not have on the wire are dropped.
func (h AtomicRequest) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.Reserved<<4|uint32(h.Op&0x0F))
	b = binary.BigEndian.AppendUint32(b, h.RequestID)
	b = binary.BigEndian.AppendUint32(b, uint32(h.STag))
	b = binary.BigEndian.AppendUint64(b, h.TO)
	b = binary.BigEndian.AppendUint64(b, h.AddSwap)
	b = binary.BigEndian.AppendUint64(b, h.AddSwapMask)
	b = binary.BigEndian.AppendUint64(b, h.Compare)
	return binary.BigEndian.AppendUint64(b, h.CompareMask)
}

// Parse decodes h from the front of b and returns the octets that follow.
func (h *AtomicRequest) Parse(b []byte) (rest []byte, err error) {
	if len(b) < AtomicRequestLen {
		return nil, errShortAtomicRequest
	}
	word := binary.BigEndian.Uint32(b)
	*h = AtomicRequest{
		Reserved: word >> 4, Op: AtomicOp(word & 0x0F),
		RequestID:   binary.BigEndian.Uint32(b[4:]),
		STag:        STag(binary.BigEndian.Uint32(b[8:])),
		TO:          binary.BigEndian.Uint64(b[12:]),
		AddSwap:     binary.BigEndian.Uint64(b[20:]),
		AddSwapMask: binary.BigEndian.Uint64(b[28:]),
		Compare:     binary.BigEndian.Uint64(b[36:]),
		CompareMask: binary.BigEndian.Uint64(b[44:]),
	}
	return b[AtomicRequestLen:], nil
}

// Append appends h in wire order and returns the extended slice.
func (h AtomicResponse) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.RequestID)
	return binary.BigEndian.AppendUint64(b, h.Original)
}

// Parse decodes h from the front of b and returns the octets that follow.
func (h *AtomicResponse) Parse(b []byte) (rest []byte, err error) {
	if len(b) < AtomicResponseLen {
		return nil, errShortAtomicResponse
	}
	h.RequestID = binary.BigEndian.Uint32(b)
	h.Original = binary.BigEndian.Uint64(b[4:])
	return b[AtomicResponseLen:], nil
}
