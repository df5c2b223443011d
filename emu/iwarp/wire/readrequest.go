package wire

import "encoding/binary"

// ReadRequest is the header of an RDMA Read Request: the responder sends Size octets from
// the source, its memory, to the sink, the requester's memory.
type ReadRequest struct {
	SinkSTag STag
	SinkTO   uint64
	Size     uint32
	SrcSTag  STag
	SrcTO    uint64
}

var errShortReadRequest = shortError("RDMA Read Request", ReadRequestLen)

// Append appends h in wire order and returns the extended slice.
func (h ReadRequest) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.SinkSTag))
	b = binary.BigEndian.AppendUint64(b, h.SinkTO)
	b = binary.BigEndian.AppendUint32(b, h.Size)
	b = binary.BigEndian.AppendUint32(b, uint32(h.SrcSTag))
	return binary.BigEndian.AppendUint64(b, h.SrcTO)
}

// Parse decodes h from the front of b and returns the octets that follow.
func (h *ReadRequest) Parse(b []byte) (rest []byte, err error) {
	if len(b) < ReadRequestLen {
		return nil, errShortReadRequest
	}
	h.SinkSTag = STag(binary.BigEndian.Uint32(b))
	h.SinkTO = binary.BigEndian.Uint64(b[4:])
	h.Size = binary.BigEndian.Uint32(b[12:])
	h.SrcSTag = STag(binary.BigEndian.Uint32(b[16:]))
	h.SrcTO = binary.BigEndian.Uint64(b[20:])
	return b[ReadRequestLen:], nil
}
