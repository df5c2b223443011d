package iwarp

import "github.com/fabrictest/fabrictest/conformance/packet"

// Addr is a tagged offset: STag and TO.
type Addr struct {
	STag uint32
	TO   uint64
}

// At returns the Addr of stag and to.
func At(stag uint32, to uint64) Addr { return Addr{stag, to} }

// Op is a segment of an opcode, without payload and RDMAP header.
func Op(op Opcode) Segment { return Segment{RDMAP: RDMAP{Opcode: &op}} }

// Any matches any segment.
func Any() Segment { return Segment{} }

// Send is a single-segment Send.
func Send(msn uint32, data []byte) Segment { return send(OpSend, msn, data) }

// SendSE is a Send with a solicited event.
func SendSE(msn uint32, data []byte) Segment { return send(OpSendSE, msn, data) }

// SendInvalidate is a Send that invalidates stag.
func SendInvalidate(msn, stag uint32, data []byte) Segment {
	return send(OpSendInvalidate, msn, data).InvalidateSTag(stag)
}

// SendSEInvalidate is a Send with a solicited event that invalidates stag.
func SendSEInvalidate(msn, stag uint32, data []byte) Segment {
	return send(OpSendSEInvalidate, msn, data).InvalidateSTag(stag)
}

// Write is a single-segment RDMA Write.
func Write(stag uint32, to uint64, data []byte) Segment { return tagged(OpWrite, stag, to, data) }

// ReadRequest is an RDMA Read Request for size octets from source to sink.
func ReadRequest(msn uint32, sink Addr, size uint32, source Addr) Segment {
	s := Op(OpReadRequest).MSN(msn)
	s.Read = &ReadRequestHeader{SinkSTag: &sink.STag, SinkTO: &sink.TO, Size: &size, SrcSTag: &source.STag, SrcTO: &source.TO}
	return s.WithPayload(nil)
}

// ReadResponse is a single-segment Read Response.
func ReadResponse(stag uint32, to uint64, data []byte) Segment {
	return tagged(OpReadResponse, stag, to, data)
}

// ReadResponseTo is the response to a Read Request, to the sink of the request.
func ReadResponseTo(request Segment, data []byte) Segment {
	h := packet.Get(request.Read, ReadRequestHeader{})
	return ReadResponse(Val(h.SinkSTag), Val(h.SinkTO), data)
}

// Terminate is a Terminate without quoted headers. As an expectation it matches any quoted
// headers.
func Terminate(cause Cause) Segment {
	s := Op(OpTerminate)
	s.Terminate = &TerminateHeader{Cause: &cause}
	return s
}

// Immediate is an Immediate Data message.
func Immediate(msn uint32, value uint64) Segment { return immediate(OpImmediate, msn, value) }

// ImmediateSE is an Immediate Data message with a solicited event.
func ImmediateSE(msn uint32, value uint64) Segment { return immediate(OpImmediateSE, msn, value) }

// FetchAdd is an Atomic Request that adds to eight octets.
func FetchAdd(msn, id uint32, at Addr, add uint64) Segment {
	return atomicRequest(msn, AtomicRequestHeader{
		Operation: new(AtomicFetchAdd), ID: &id, STag: &at.STag, TO: &at.TO, Data: &add, Compare: new(uint64(0)),
	})
}

// CompareSwap is an Atomic Request that replaces compare by swap.
func CompareSwap(msn, id uint32, at Addr, compare, swap uint64) Segment {
	return atomicRequest(msn, AtomicRequestHeader{
		Operation: new(AtomicCompareSwap), ID: &id, STag: &at.STag, TO: &at.TO, Data: &swap, Compare: &compare,
	})
}

// AtomicResponse is the response to an atomic, with the original value. Its MSN counts
// responses, not requests.
func AtomicResponse(msn, id uint32, original uint64) Segment {
	s := Op(OpAtomicResponse).MSN(msn)
	s.AtomicResponse = &AtomicResponseHeader{ID: &id, Original: &original}
	return s.WithPayload(nil)
}

// RawSegment is a ULPDU of any octets. As an expectation it matches these octets only.
func RawSegment(ulpdu []byte) Segment { return ParseSegment(ulpdu) }

func send(op Opcode, msn uint32, data []byte) Segment { return Op(op).MSN(msn).WithPayload(data) }

func tagged(op Opcode, stag uint32, to uint64, data []byte) Segment {
	return Op(op).STag(stag).TO(to).WithPayload(data)
}

func immediate(op Opcode, msn uint32, value uint64) Segment {
	s := Op(op).MSN(msn)
	s.Immediate = &ImmediateHeader{Value: &value}
	return s.WithPayload(nil)
}

func atomicRequest(msn uint32, h AtomicRequestHeader) Segment {
	s := Op(OpAtomicRequest).MSN(msn)
	s.AtomicRequest = &h
	return s.WithPayload(nil)
}
