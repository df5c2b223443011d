package iwarp

import "github.com/fabrictest/fabrictest/conformance/packet"

// Opcode sets the opcode, and nothing that would have to go with it.
func (s Segment) Opcode(op Opcode) Segment { s.RDMAP.Opcode = &op; return s }

// Tagged sets the T bit; the header stays as it is.
func (s Segment) Tagged(v bool) Segment { s.DDP.Tagged = &v; return s }

// Last sets the L bit.
func (s Segment) Last(v bool) Segment { s.DDP.Last = &v; return s }

// DDPReserved sets the four reserved bits of DDP.
func (s Segment) DDPReserved(v uint8) Segment { s.DDP.Reserved = &v; return s }

// DV sets the version of DDP.
func (s Segment) DV(v uint8) Segment { s.DDP.Version = &v; return s }

// RV sets the version of RDMAP.
func (s Segment) RV(v uint8) Segment { s.RDMAP.Version = &v; return s }

// RDMAPReserved sets the two reserved bits of RDMAP.
func (s Segment) RDMAPReserved(v uint8) Segment { s.RDMAP.Reserved = &v; return s }

// STag sets the tag of a tagged segment.
func (s Segment) STag(v uint32) Segment { s.DDP.STag = &v; return s }

// TO sets the offset of a tagged segment.
func (s Segment) TO(v uint64) Segment { s.DDP.TO = &v; return s }

// QN sets the queue of an untagged segment.
func (s Segment) QN(v uint32) Segment { s.DDP.QN = &v; return s }

// MSN sets the message number of an untagged segment.
func (s Segment) MSN(v uint32) Segment { s.DDP.MSN = &v; return s }

// MO sets the offset in its message of an untagged segment.
func (s Segment) MO(v uint32) Segment { s.DDP.MO = &v; return s }

// InvalidateSTag sets the field of that name of an untagged segment.
func (s Segment) InvalidateSTag(v uint32) Segment { s.RDMAP.InvalidateSTag = &v; return s }

// WithPayload sets what follows the headers; nil is no payload.
func (s Segment) WithPayload(b []byte) Segment {
	if b == nil {
		b = []byte{}
	}
	s.Payload = b
	return s
}

// AnyPayload has an expectation look at no payload.
func (s Segment) AnyPayload() Segment { s.Payload, s.PayloadLen = nil, nil; return s }

// Length sets how many octets of payload there are; an expectation then looks at
// their number only.
func (s Segment) Length(n int) Segment { s.Payload, s.PayloadLen = nil, &n; return s }

// Cut sends the first n octets of the segment only. The FPDU around it is whole.
func (s Segment) Cut(n int) Segment { s.CutAt = &n; return s }

// EditRead changes the header of a Read Request.
func (s Segment) EditRead(edit func(*ReadRequestHeader)) Segment {
	h := packet.Get(s.Read, ReadRequestHeader{})
	edit(&h)
	s.Read = &h
	return s
}

// EditAtomic changes the header of an Atomic Request.
func (s Segment) EditAtomic(edit func(*AtomicRequestHeader)) Segment {
	h := packet.Get(s.AtomicRequest, AtomicRequestHeader{})
	edit(&h)
	s.AtomicRequest = &h
	return s
}

// EditTerminate changes what a Terminate says.
func (s Segment) EditTerminate(edit func(*TerminateHeader)) Segment {
	h := packet.Get(s.Terminate, TerminateHeader{})
	edit(&h)
	s.Terminate = &h
	return s
}

// About has a Terminate quote the segment that was wrong: its length, its DDP header
// and, of a Read Request, its RDMAP header, as RFC 5040 section 7.1 wants for what
// came in.
func (s Segment) About(wrong Segment) Segment {
	return s.EditTerminate(func(h *TerminateHeader) {
		b := wrong.Append(nil)
		n := min(untaggedLen, len(b))
		if n > 0 {
			n = min(ddpHeaderLen(b[0]), n)
		}
		h.LengthValid, h.HasDDP, h.HasRDMAP = new(true), new(true), new(wrong.Read != nil)
		h.SegmentLength = new(uint16(len(b)))
		h.DDPHeader = b[:n]
		h.RDMAPHeader = nil
		if wrong.Read != nil {
			h.RDMAPHeader = packet.AppendFields(nil, wrong.Read)
		}
	})
}

// Quoting has an expected Terminate quote the DDP header of the segment that was
// wrong, and leaves open which length it tells and what else it quotes.
func (s Segment) Quoting(wrong Segment) Segment {
	full := s.About(wrong).Terminate
	return s.EditTerminate(func(h *TerminateHeader) {
		h.HasDDP, h.DDPHeader = full.HasDDP, full.DDPHeader
	})
}

// QuotingNothing has an expected Terminate quote nothing, as after errors of MPA.
func (s Segment) QuotingNothing() Segment {
	return s.EditTerminate(func(h *TerminateHeader) {
		h.LengthValid, h.HasDDP, h.HasRDMAP = new(false), new(false), new(false)
	}).WithPayload(nil)
}

// Segments cuts the message that s would be in one segment into segments of at most
// ulpdu octets each, headers included, as a sender does: MO or TO go on, and the
// last has the L bit. A message with a header of RDMAP is not cut.
func (s Segment) Segments(ulpdu int) []Segment {
	whole := s.Append(nil)
	header := len(s.appendHeaders(nil))
	room := ulpdu - header
	if len(whole) <= ulpdu || room <= 0 || header > untaggedLen {
		return []Segment{s}
	}
	payload := whole[header:]
	var cut []Segment
	for at := 0; at < len(payload); at += room {
		part := s.WithPayload(payload[at:min(at+room, len(payload))])
		part.PayloadLen, part.CutAt = nil, nil
		if s.IsTagged() {
			part = part.TO(Val(s.DDP.TO) + uint64(at))
		} else {
			part = part.MO(Val(s.DDP.MO) + uint32(at))
		}
		if at+room < len(payload) {
			part = part.Last(false)
		}
		cut = append(cut, part)
	}
	return cut
}
