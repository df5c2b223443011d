package iwarp

import "github.com/fabrictest/fabrictest/conformance/packet"

// Addr is a tagged offset: STag and TO.
type Addr struct {
	STag uint32
	TO   uint64
}

// At returns the Addr of stag and to.
func At(stag uint32, to uint64) Addr { return Addr{stag, to} }

// Op returns a segment of an opcode, without payload and RDMAP header.
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

// Terminate is a Terminate that quotes no headers. As the expected segment of a comparison, it
// matches any quoted headers.
func Terminate(cause Cause) Segment {
	s := Op(OpTerminate)
	s.Terminate = &TerminateHeader{Cause: &cause}
	return s
}

// Immediate is an Immediate Data message.
func Immediate(msn uint32, value uint64) Segment { return immediate(OpImmediate, msn, value) }

// ImmediateSE is an Immediate Data message with a solicited event.
func ImmediateSE(msn uint32, value uint64) Segment { return immediate(OpImmediateSE, msn, value) }

// FetchAdd is an Atomic Request that adds to the eight octets at an address.
func FetchAdd(msn, id uint32, at Addr, add uint64) Segment {
	return atomicRequest(msn, AtomicRequestHeader{
		Operation: new(AtomicFetchAdd), ID: &id, STag: &at.STag, TO: &at.TO, Data: &add, Compare: new(uint64(0)),
	})
}

// CompareSwap is an Atomic Request that stores swap at an address if the value equals compare.
func CompareSwap(msn, id uint32, at Addr, compare, swap uint64) Segment {
	return atomicRequest(msn, AtomicRequestHeader{
		Operation: new(AtomicCompareSwap), ID: &id, STag: &at.STag, TO: &at.TO, Data: &swap, Compare: &compare,
	})
}

// AtomicResponse is the response to an atomic. Its MSN counts responses, not requests.
func AtomicResponse(msn, id uint32, original uint64) Segment {
	s := Op(OpAtomicResponse).MSN(msn)
	s.AtomicResponse = &AtomicResponseHeader{ID: &id, Original: &original}
	return s.WithPayload(nil)
}

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

// Opcode returns a copy with this opcode field, and the same headers.
func (s Segment) Opcode(op Opcode) Segment { s.RDMAP.Opcode = &op; return s }

// Tagged returns a copy with this T bit, and the same headers.
func (s Segment) Tagged(v bool) Segment { s.DDP.Tagged = &v; return s }

// Last returns a copy with this L bit.
func (s Segment) Last(v bool) Segment { s.DDP.Last = &v; return s }

// DDPReserved returns a copy with these four reserved bits of DDP.
func (s Segment) DDPReserved(v uint8) Segment { s.DDP.Reserved = &v; return s }

// DV returns a copy with this version of DDP.
func (s Segment) DV(v uint8) Segment { s.DDP.Version = &v; return s }

// RV returns a copy with this version of RDMAP.
func (s Segment) RV(v uint8) Segment { s.RDMAP.Version = &v; return s }

// RDMAPReserved returns a copy with these two reserved bits of RDMAP.
func (s Segment) RDMAPReserved(v uint8) Segment { s.RDMAP.Reserved = &v; return s }

// STag returns a copy of a tagged segment with this STag.
func (s Segment) STag(v uint32) Segment { s.DDP.STag = &v; return s }

// TO returns a copy with this tagged offset.
func (s Segment) TO(v uint64) Segment { s.DDP.TO = &v; return s }

// QN returns a copy of an untagged segment with this queue number.
func (s Segment) QN(v uint32) Segment { s.DDP.QN = &v; return s }

// MSN returns a copy of an untagged segment with this message sequence number.
func (s Segment) MSN(v uint32) Segment { s.DDP.MSN = &v; return s }

// MO returns a copy of an untagged segment with this message offset.
func (s Segment) MO(v uint32) Segment { s.DDP.MO = &v; return s }

// InvalidateSTag returns a copy of an untagged segment with this Invalidate STag.
func (s Segment) InvalidateSTag(v uint32) Segment { s.RDMAP.InvalidateSTag = &v; return s }

// WithPayload returns a copy with this payload; nil means an empty one.
func (s Segment) WithPayload(b []byte) Segment {
	if b == nil {
		b = []byte{}
	}
	s.Payload = b
	return s
}

// Length returns a copy with this payload length and no payload: an expectation then compares the
// length only.
func (s Segment) Length(n int) Segment { s.Payload, s.PayloadLen = nil, &n; return s }

// Cut returns a copy that is truncated to n octets. The FPDU around it is complete.
func (s Segment) Cut(n int) Segment { s.CutAt = &n; return s }

// edited returns a copy of a header, changed by edit; nil counts as the zero header.
func edited[Header any](header *Header, edit func(*Header)) *Header {
	h := Val(header)
	edit(&h)
	return &h
}

// EditRead returns a copy with the header of its Read Request changed by edit.
func (s Segment) EditRead(edit func(*ReadRequestHeader)) Segment {
	s.Read = edited(s.Read, edit)
	return s
}

// EditAtomic returns a copy with the header of its Atomic Request changed by edit.
func (s Segment) EditAtomic(edit func(*AtomicRequestHeader)) Segment {
	s.AtomicRequest = edited(s.AtomicRequest, edit)
	return s
}

// EditTerminate returns a copy with its Terminate header changed by edit.
func (s Segment) EditTerminate(edit func(*TerminateHeader)) Segment {
	s.Terminate = edited(s.Terminate, edit)
	return s
}

// About returns a copy of a Terminate that quotes wrong, the segment that caused it, as RFC 5040
// section 7.1 requires: its length, its DDP header and, for a Read Request, its RDMAP header.
func (s Segment) About(wrong Segment) Segment {
	return s.EditTerminate(func(h *TerminateHeader) {
		b := wrong.Append(nil)
		headerLen := len(b) // of a segment that is too short for its header
		if len(b) > 0 {
			headerLen = min(ddpHeaderLen(b[0]), len(b))
		}
		h.LengthValid, h.HasDDP, h.HasRDMAP = new(true), new(true), new(wrong.Read != nil)
		h.SegmentLength = new(uint16(len(b)))
		h.DDPHeader = b[:headerLen]
		h.RDMAPHeader = nil
		if wrong.Read != nil {
			h.RDMAPHeader = packet.AppendFields(nil, wrong.Read)
		}
	})
}

// Quoting returns a copy of s, an expected Terminate. The copy matches only Terminates that quote
// at least the DDP header of wrong, the segment that caused them.
func (s Segment) Quoting(wrong Segment) Segment {
	full := s.About(wrong).Terminate
	return s.EditTerminate(func(h *TerminateHeader) { h.HasDDP, h.DDPHeader = full.HasDDP, full.DDPHeader })
}

// QuotingNothing returns a copy of s, an expected Terminate. The copy matches only Terminates that
// quote nothing, such as those for MPA errors.
func (s Segment) QuotingNothing() Segment {
	return s.EditTerminate(func(h *TerminateHeader) {
		h.LengthValid, h.HasDDP, h.HasRDMAP = new(false), new(false), new(false)
	}).WithPayload(nil)
}

// Segments splits a message into segments of at most ulpdu octets, headers included, as a
// sender does. It does not split a message with an RDMAP header, or if no payload would fit.
func (s Segment) Segments(ulpdu int) []Segment {
	whole := s.Append(nil)
	header := len(s.appendHeaders(nil))
	maxPayload := ulpdu - header
	if len(whole) <= ulpdu || maxPayload <= 0 || header > untaggedLen {
		return []Segment{s}
	}
	payload := whole[header:]
	var segments []Segment
	for at := 0; at < len(payload); at += maxPayload {
		part := s.WithPayload(payload[at:min(at+maxPayload, len(payload))])
		part.PayloadLen, part.CutAt = nil, nil
		if s.IsTagged() {
			part = part.TO(Val(s.DDP.TO) + uint64(at))
		} else {
			part = part.MO(Val(s.DDP.MO) + uint32(at))
		}
		if at+maxPayload < len(payload) {
			part = part.Last(false)
		}
		segments = append(segments, part)
	}
	return segments
}
