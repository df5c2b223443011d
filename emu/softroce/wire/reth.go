package wire

import "encoding/binary"

// RETH is the RDMA Extended Transport Header: the remote memory of a WRITE, READ, FLUSH or
// ATOMIC_WRITE.
type RETH struct {
	VA     uint64
	RKey   uint32
	DMALen uint32 // length of the whole message, at most 2^31
}

var errShortRETH = shortError("RETH", RETHLen)

// Append appends h in wire order and returns the extended slice.
func (h RETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.DMALen)
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *RETH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < RETHLen {
		return nil, errShortRETH
	}
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.DMALen = binary.BigEndian.Uint32(b[12:])
	return b[RETHLen:], nil
}
