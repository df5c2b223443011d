package iwarp

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Segment is a DDP segment with its RDMAP header: a ULPDU of MPA.
type Segment struct {
	DDP   DDP
	RDMAP RDMAP

	// The RDMAP header after the DDP header; nil: none.
	Read           *ReadRequestHeader
	Terminate      *TerminateHeader
	AtomicRequest  *AtomicRequestHeader
	AtomicResponse *AtomicResponseHeader
	Immediate      *ImmediateHeader
	OtherHeader    []byte // an unknown header

	// Payload follows the headers; nil is none when building and any when comparing. An
	// empty slice matches no payload.
	Payload []byte
	// PayloadLen is the length to which building cuts the payload, or fills it up with zeros.
	PayloadLen *int
	// CutAt truncates a built segment; nil: not truncated. Comparing ignores it.
	CutAt *int
	// Verbatim are the octets of a segment that is too short for its header.
	Verbatim []byte

	// MPA has the fields of the FPDU around the segment. Parsing and [Segment.Diff] ignore it.
	MPA MPA
}

// DDP has the DDP header fields (RFC 5041 section 4). Its tags describe a segment's first octet.
type DDP struct {
	_        struct{} `size:"1"`
	Tagged   *bool    `at:"0.0,1"`         // T; nil: by the fields below
	Last     *bool    `at:"0.1,1" def:"1"` // L
	Reserved *uint8   `at:"0.2,4"`
	Version  *uint8   `at:"0.6,2" def:"1"` // DV

	// Tagged segments.
	STag *uint32
	TO   *uint64
	// Untagged segments.
	QN  *uint32 // nil: the opcode's
	MSN *uint32 // nil: 1
	MO  *uint32
}

// RDMAP has the control fields (RFC 5040 section 4.1). Its tags describe a segment's second octet.
type RDMAP struct {
	_        struct{} `size:"1"`
	Version  *uint8   `at:"0.0,2" def:"1"` // RV
	Reserved *uint8   `at:"0.2,2"`
	Opcode   *Opcode  `at:"0.4,4"`
	// InvalidateSTag is present in untagged segments only, and used by two kinds of Send.
	InvalidateSTag *uint32
}

// IsTagged reports whether the segment has the tagged header. Fields that only one of the two
// headers has decide first, so that a case can combine them with a wrong T bit. Without such fields
// the T bit decides, or the opcode if that is nil too.
func (s Segment) IsTagged() bool {
	d := &s.DDP
	switch {
	case d.STag != nil || d.TO != nil:
		return true
	case d.QN != nil || d.MSN != nil || d.MO != nil || s.RDMAP.InvalidateSTag != nil:
		return false
	case d.Tagged != nil:
		return *d.Tagged
	default:
		return s.Op().Tagged()
	}
}

// Op returns the opcode; Write if it is nil.
func (s Segment) Op() Opcode { return Val(s.RDMAP.Opcode) }

// Append appends Verbatim if it is set; else headers and payload, with the payload cut or filled
// with zeros to PayloadLen, and the segment cut at CutAt.
func (s Segment) Append(b []byte) []byte {
	if s.Verbatim != nil {
		return append(b, s.Verbatim...)
	}
	start := len(b)
	b = s.appendHeaders(b)
	payload := s.Payload
	if n := packet.Get(s.PayloadLen, len(payload)); n <= len(payload) {
		b = append(b, payload[:max(n, 0)]...)
	} else {
		b = append(b, payload...)
		b = append(b, make([]byte, n-len(payload))...)
	}
	if n := packet.Get(s.CutAt, len(b)-start); n < len(b)-start {
		b = b[:start+max(n, 0)]
	}
	return b
}

// Len returns the length of the segment, the ULPDU_Length.
func (s Segment) Len() int { return len(s.Append(nil)) }

// appendHeaders appends the DDP header, the RDMAP header that is set, and OtherHeader.
func (s Segment) appendHeaders(b []byte) []byte {
	b = s.appendDDP(b)
	switch {
	case s.Read != nil:
		b = packet.AppendFields(b, s.Read)
	case s.Terminate != nil:
		b = s.Terminate.append(b)
	case s.AtomicRequest != nil:
		mask := uint64(0) // an add carries from each bit to the next
		if Val(s.AtomicRequest.Operation) == AtomicCompareSwap {
			mask = ^mask // a swap changes all bits
		}
		b = packet.AppendFields(b, packet.Or(*s.AtomicRequest, AtomicRequestHeader{Mask: &mask}))
	case s.AtomicResponse != nil:
		b = packet.AppendFields(b, s.AtomicResponse)
	case s.Immediate != nil:
		b = packet.AppendFields(b, s.Immediate)
	}
	return append(b, s.OtherHeader...)
}

// appendDDP appends the DDP header, which includes the control octet and Invalidate STag of RDMAP.
func (s Segment) appendDDP(b []byte) []byte {
	d, r := &s.DDP, &s.RDMAP
	tagged := s.IsTagged()
	b = packet.AppendFields(b, packet.Or(*d, DDP{Tagged: &tagged}))
	b = packet.AppendFields(b, r)
	if tagged {
		b = binary.BigEndian.AppendUint32(b, Val(d.STag))
		return binary.BigEndian.AppendUint64(b, Val(d.TO))
	}
	b = binary.BigEndian.AppendUint32(b, Val(r.InvalidateSTag))
	b = binary.BigEndian.AppendUint32(b, packet.Get(d.QN, s.Op().Queue()))
	b = binary.BigEndian.AppendUint32(b, packet.Get(d.MSN, firstMSN))
	return binary.BigEndian.AppendUint32(b, Val(d.MO))
}

// ParseSegment parses a ULPDU of any octets. The T bit decides which DDP header is parsed. A ULPDU
// too short for it is kept in Verbatim, and a truncated RDMAP header as payload, so that Append
// returns the same octets. The result does not alias b.
func ParseSegment(b []byte) Segment {
	b = append([]byte{}, b...)
	var s Segment
	if len(b) >= controlLen {
		rest, _ := packet.ParseFields(b, &s.DDP)
		_, _ = packet.ParseFields(rest, &s.RDMAP)
		if len(b) >= ddpHeaderLen(b[0]) {
			s.Payload = s.parseHeaders(b)
			return s
		}
	}
	s.Verbatim = b
	return s
}

// parseHeaders parses the rest of the headers of b, of which s has the control fields: the DDP
// header, which must be complete, and the RDMAP header, if the opcode has one. It returns the
// octets after them; an incomplete RDMAP header is among these.
func (s *Segment) parseHeaders(b []byte) (rest []byte) {
	be := binary.BigEndian
	if *s.DDP.Tagged {
		s.DDP.STag, s.DDP.TO = new(be.Uint32(b[2:])), new(be.Uint64(b[6:]))
		return b[taggedLen:]
	}
	s.RDMAP.InvalidateSTag = new(be.Uint32(b[2:]))
	s.DDP.QN, s.DDP.MSN, s.DDP.MO = new(be.Uint32(b[6:])), new(be.Uint32(b[10:])), new(be.Uint32(b[14:]))
	b = b[untaggedLen:]
	switch *s.RDMAP.Opcode {
	case OpReadRequest:
		s.Read, b = packet.ParseAs[ReadRequestHeader](b)
	case OpTerminate:
		s.Terminate, b = parseTerminate(b)
	case OpAtomicRequest:
		s.AtomicRequest, b = packet.ParseAs[AtomicRequestHeader](b)
	case OpAtomicResponse:
		s.AtomicResponse, b = packet.ParseAs[AtomicResponseHeader](b)
	case OpImmediate, OpImmediateSE:
		s.Immediate, b = packet.ParseAs[ImmediateHeader](b)
	}
	return b
}

// Diff adds the fields of got that differ from the expected segment s to d. Nil matches any value.
func (s Segment) Diff(d *packet.Differences, got Segment) {
	packet.DiffValue(d, "opcode", "%v", s.RDMAP.Opcode, got.RDMAP.Opcode)
	packet.DiffValue(d, "T", "%t", s.DDP.Tagged, got.DDP.Tagged)
	packet.DiffValue(d, "L", "%t", s.DDP.Last, got.DDP.Last)
	packet.DiffValue(d, "DDP reserved bits", "%#x", s.DDP.Reserved, got.DDP.Reserved)
	packet.DiffValue(d, "DV", "%d", s.DDP.Version, got.DDP.Version)
	packet.DiffValue(d, "STag", "%#x", s.DDP.STag, got.DDP.STag)
	packet.DiffValue(d, "TO", "%#x", s.DDP.TO, got.DDP.TO)
	packet.DiffValue(d, "QN", "%d", s.DDP.QN, got.DDP.QN)
	packet.DiffValue(d, "MSN", "%d", s.DDP.MSN, got.DDP.MSN)
	packet.DiffValue(d, "MO", "%d", s.DDP.MO, got.DDP.MO)
	packet.DiffValue(d, "RV", "%d", s.RDMAP.Version, got.RDMAP.Version)
	packet.DiffValue(d, "RDMAP reserved bits", "%#x", s.RDMAP.Reserved, got.RDMAP.Reserved)
	packet.DiffValue(d, "Invalidate STag", "%#x", s.RDMAP.InvalidateSTag, got.RDMAP.InvalidateSTag)
	packet.DiffHeader(d, "Read Request header", "", s.Read, got.Read)
	packet.DiffHeader(d, "Atomic Request header", "", s.AtomicRequest, got.AtomicRequest)
	packet.DiffHeader(d, "Atomic Response header", "", s.AtomicResponse, got.AtomicResponse)
	packet.DiffHeader(d, "immediate data", "", s.Immediate, got.Immediate)
	packet.DiffHeader(d, "Terminate header", "", s.Terminate, got.Terminate)
	if want, has := s.Terminate, got.Terminate; want != nil && has != nil {
		packet.DiffValue(d, "SegmentLength", "%d", want.SegmentLength, has.SegmentLength)
		packet.DiffBytes(d, "quoted DDP header", want.DDPHeader, has.DDPHeader)
		packet.DiffBytes(d, "quoted RDMAP header", want.RDMAPHeader, has.RDMAPHeader)
	}
	packet.DiffBytes(d, "header", s.OtherHeader, got.OtherHeader)
	packet.DiffBytes(d, "payload", s.Payload, got.Payload)
	if s.Payload == nil {
		packet.DiffValue(d, "payload", "%d B", s.PayloadLen, new(len(got.Payload)))
	}
	if s.Verbatim != nil {
		packet.DiffBytes(d, "ULPDU", s.Verbatim, got.Append(nil))
	}
}
