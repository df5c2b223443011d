package iwarp

import "github.com/fabrictest/fabrictest/conformance/packet"

// Addr is a place in tagged memory.
type Addr struct {
	STag uint32
	TO   uint64
}

// At is the place that stag and to name.
func At(stag uint32, to uint64) Addr { return Addr{stag, to} }

// Of is any segment of an opcode. Built as it is, it has no payload and no header
// behind that of DDP.
func Of(op Opcode) Segment { return Segment{RDMAP: RDMAP{Opcode: &op}} }

// Any is any segment at all.
func Any() Segment { return Segment{} }

// Send is a Send of data in one segment.
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

// Write is an RDMA Write of data in one segment.
func Write(stag uint32, to uint64, data []byte) Segment { return tagged(OpWrite, stag, to, data) }

// ReadRequest asks for size octets of source, to be put into sink.
func ReadRequest(msn uint32, sink Addr, size uint32, source Addr) Segment {
	s := Of(OpReadRequest).MSN(msn)
	s.Read = &ReadRequestHeader{SinkSTag: &sink.STag, SinkTO: &sink.TO, Size: &size, SrcSTag: &source.STag, SrcTO: &source.TO}
	return s.WithPayload(nil)
}

// ReadResponse is a Read Response of data in one segment.
func ReadResponse(stag uint32, to uint64, data []byte) Segment {
	return tagged(OpReadResponse, stag, to, data)
}

// ReadResponseTo answers a Read Request with data, at the sink that the request names.
func ReadResponseTo(request Segment, data []byte) Segment {
	h := packet.Get(request.Read, ReadRequestHeader{})
	return ReadResponse(Val(h.SinkSTag), Val(h.SinkTO), data)
}

// Terminate ends a stream because of cause, and quotes nothing. Where it is expected,
// it may quote anything.
func Terminate(cause Cause) Segment {
	s := Of(OpTerminate)
	s.Terminate = &TerminateHeader{Cause: &cause}
	return s
}

// Immediate is a message of immediate data.
func Immediate(msn uint32, value uint64) Segment { return immediate(OpImmediate, msn, value) }

// ImmediateSE is a message of immediate data with a solicited event.
func ImmediateSE(msn uint32, value uint64) Segment { return immediate(OpImmediateSE, msn, value) }

// FetchAdd asks for add to be added to the eight octets at a place.
func FetchAdd(msn, id uint32, at Addr, add uint64) Segment {
	return atomicRequest(msn, AtomicRequestHeader{
		Operation: new(AtomicFetchAdd), ID: &id, STag: &at.STag, TO: &at.TO, Data: &add, Compare: new(uint64(0)),
	})
}

// CompareSwap asks for the eight octets at a place to become swap if they are compare.
func CompareSwap(msn, id uint32, at Addr, compare, swap uint64) Segment {
	return atomicRequest(msn, AtomicRequestHeader{
		Operation: new(AtomicCompareSwap), ID: &id, STag: &at.STag, TO: &at.TO, Data: &swap, Compare: &compare,
	})
}

// AtomicResponse answers an atomic request with what was there before. Its MSN counts
// the responses, not the requests.
func AtomicResponse(msn, id uint32, original uint64) Segment {
	s := Of(OpAtomicResponse).MSN(msn)
	s.AtomicResponse = &AtomicResponseHeader{ID: &id, Original: &original}
	return s.WithPayload(nil)
}

// Octets is a ULPDU of any octets. As an expectation it is of every one of them.
func Octets(ulpdu []byte) Segment { return ParseSegment(ulpdu) }

func send(op Opcode, msn uint32, data []byte) Segment { return Of(op).MSN(msn).WithPayload(data) }

func tagged(op Opcode, stag uint32, to uint64, data []byte) Segment {
	return Of(op).STag(stag).TO(to).WithPayload(data)
}

func immediate(op Opcode, msn uint32, value uint64) Segment {
	s := Of(op).MSN(msn)
	s.Immediate = &ImmediateHeader{Value: &value}
	return s.WithPayload(nil)
}

func atomicRequest(msn uint32, h AtomicRequestHeader) Segment {
	s := Of(OpAtomicRequest).MSN(msn)
	s.AtomicRequest = &h
	return s.WithPayload(nil)
}
