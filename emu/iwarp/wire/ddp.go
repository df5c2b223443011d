package wire

import "encoding/binary"

// STag is a steering tag: the key of registered memory.
type STag uint32

// QN is the queue number of an untagged message.
type QN uint32

// The queues that RDMAP uses.
const (
	QueueSend           QN = 0 // Sends and Immediate Data
	QueueReadRequest    QN = 1 // Read Requests and Atomic Requests
	QueueTerminate      QN = 2
	QueueAtomicResponse QN = 3
)

// Tagged is the header of a tagged segment after the control octets: the destination memory.
type Tagged struct {
	STag STag
	TO   uint64 // tagged offset
}

// Untagged is the header of an untagged segment after the control octets.
type Untagged struct {
	// Invalidate is the STag that a Send with Invalidate invalidates; 0 in other messages.
	Invalidate STag
	QN         QN
	MSN        MSN
	MO         uint32 // message offset of the payload
}

var (
	errShortTagged   = shortError("tagged DDP header", TaggedLen)
	errShortUntagged = shortError("untagged DDP header", UntaggedLen)
)

// Append appends h in wire order and returns the extended slice.
func (h Tagged) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.STag))
	return binary.BigEndian.AppendUint64(b, h.TO)
}

// Parse decodes h from the front of b and returns the octets that follow.
func (h *Tagged) Parse(b []byte) (rest []byte, err error) {
	if len(b) < TaggedLen {
		return nil, errShortTagged
	}
	h.STag = STag(binary.BigEndian.Uint32(b))
	h.TO = binary.BigEndian.Uint64(b[4:])
	return b[TaggedLen:], nil
}

// Append appends h in wire order and returns the extended slice.
func (h Untagged) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.Invalidate))
	b = binary.BigEndian.AppendUint32(b, uint32(h.QN))
	b = binary.BigEndian.AppendUint32(b, uint32(h.MSN))
	return binary.BigEndian.AppendUint32(b, h.MO)
}

// Parse decodes h from the front of b and returns the octets that follow.
func (h *Untagged) Parse(b []byte) (rest []byte, err error) {
	if len(b) < UntaggedLen {
		return nil, errShortUntagged
	}
	h.Invalidate = STag(binary.BigEndian.Uint32(b))
	h.QN = QN(binary.BigEndian.Uint32(b[4:]))
	h.MSN = MSN(binary.BigEndian.Uint32(b[8:]))
	h.MO = binary.BigEndian.Uint32(b[12:])
	return b[UntaggedLen:], nil
}
