package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// String formats the segment as a line of a ladder diagram: "WRITE stag 0x12 to 0x100 64 B
// last". It omits unset fields, and fields with their usual value.
func (s Segment) String() string {
	var l packet.Line
	if s.RDMAP.Opcode == nil {
		l.Addf("SEGMENT")
	} else {
		l.Addf("%v", s.Op())
	}
	if s.Verbatim != nil {
		l.Addf("%d B, too short for its header", len(s.Verbatim))
		return l.String()
	}
	if s.Terminate != nil {
		packet.AddField(&l, "%v", s.Terminate.Cause)
		if wrong, ok := s.Terminate.QuotedSegment(); ok {
			l.Addf("about %v", wrong)
		}
	} else {
		packet.AddField(&l, "stag %#x", s.DDP.STag)
		packet.AddField(&l, "to %#x", s.DDP.TO)
		packet.AddField(&l, "msn %d", s.DDP.MSN)
		addIf(&l, Val(s.DDP.MO) != 0, "mo %d", Val(s.DDP.MO))
		addIf(&l, Val(s.RDMAP.InvalidateSTag) != 0, "invalidate %#x", Val(s.RDMAP.InvalidateSTag))
		s.describeHeaders(&l)
		s.describeData(&l)
	}
	s.describeOddControl(&l)
	s.MPA.describe(&l)
	return l.String()
}

// describeHeaders adds the fields of the RDMAP header.
func (s Segment) describeHeaders(l *packet.Line) {
	if h := s.Read; h != nil {
		packet.AddField(l, "%d B", h.Size)
		l.Addf("from %s to %s", place(h.SrcSTag, h.SrcTO), place(h.SinkSTag, h.SinkTO))
	}
	if h := s.AtomicRequest; h != nil {
		packet.AddField(l, "id %#x", h.ID)
		if Val(h.Operation) == AtomicCompareSwap {
			packet.AddField(l, "if %#x", h.Compare)
			packet.AddField(l, "swap in %#x", h.Data)
		} else {
			packet.AddField(l, "add %#x", h.Data)
		}
		l.Addf("at %s", place(h.STag, h.TO))
	}
	if h := s.AtomicResponse; h != nil {
		packet.AddField(l, "id %#x", h.ID)
		packet.AddField(l, "was %#x", h.Original)
	}
	if h := s.Immediate; h != nil {
		packet.AddField(l, "%#x", h.Value)
	}
}

// describeData adds the payload length and, unless the L bit is nil, "more" if it is 0, or "last"
// if it is 1 and the message has a payload.
func (s Segment) describeData(l *packet.Line) {
	f, _ := s.Op().form()
	switch {
	case s.Payload != nil && (f.payload || len(s.Payload) > 0):
		l.Addf("%d B", len(s.Payload))
	case s.Payload == nil:
		packet.AddField(l, "%d B", s.PayloadLen)
	}
	switch {
	case s.DDP.Last == nil:
	case !*s.DDP.Last:
		l.Addf("more")
	case f.payload:
		l.Addf("last")
	}
}

// describeOddControl adds control fields with unusual values.
func (s Segment) describeOddControl(l *packet.Line) {
	f, known := s.Op().form()
	tagged, qn := packet.Get(s.DDP.Tagged, f.tagged), packet.Get(s.DDP.QN, f.qn)
	dv, rv := packet.Get(s.DDP.Version, version), packet.Get(s.RDMAP.Version, version)
	addIf(l, known && tagged != f.tagged, "T=%t", tagged)
	addIf(l, qn != f.qn, "qn %d", qn)
	addIf(l, dv != version, "dv %#x", dv)
	addIf(l, rv != version, "rv %#x", rv)
	addIf(l, Val(s.DDP.Reserved) != 0, "ddp-reserved %#x", Val(s.DDP.Reserved))
	addIf(l, Val(s.RDMAP.Reserved) != 0, "rdmap-reserved %#x", Val(s.RDMAP.Reserved))
}

// addIf adds a formatted part to a line if cond is true.
func addIf(l *packet.Line, cond bool, format string, args ...any) {
	if cond {
		l.Addf(format, args...)
	}
}

// place formats a tagged address as STag+TO.
func place(stag *uint32, to *uint64) string {
	return fmt.Sprintf("%s+%s", hexOrAny(stag), hexOrAny(to))
}

// hexOrAny formats a field of an expected segment; nil matches any value.
func hexOrAny[T uint32 | uint64](v *T) string {
	if v == nil {
		return "any"
	}
	return fmt.Sprintf("%#x", *v)
}

// Oddities lists unusual values of a segment as text. Cases decide whether one is an error.
func (s Segment) Oddities() []string {
	var odd oddities
	if s.Verbatim != nil {
		odd.addf("a segment of %d octets is too short for its header", len(s.Verbatim))
		return odd
	}
	f, ok := s.Op().form()
	odd.addIf(!ok, "opcode %d is not assigned", s.Op())
	s.findControlOddities(&odd, f, ok)
	s.findHeaderOddities(&odd, f)
	s.Terminate.findOddities(&odd, s)
	return odd
}

// findControlOddities adds unusual values of the control fields. f is the layout of the opcode's
// messages, known says whether the opcode is assigned.
func (s Segment) findControlOddities(odd *oddities, f form, known bool) {
	odd.addUnless("DV", packet.Get(s.DDP.Version, version), version)
	odd.addUnless("RV", packet.Get(s.RDMAP.Version, version), version)
	odd.addUnless("reserved bits of DDP", Val(s.DDP.Reserved), 0)
	odd.addUnless("reserved bits of RDMAP", Val(s.RDMAP.Reserved), 0)
	if !known {
		return
	}
	tagged, qn, stag, mo := packet.Get(s.DDP.Tagged, f.tagged), packet.Get(s.DDP.QN, f.qn), Val(s.RDMAP.InvalidateSTag), Val(s.DDP.MO)
	odd.addIf(tagged != f.tagged, "T is %t, for %v it is %t", tagged, s.Op(), f.tagged)
	odd.addIf(stag != 0 && !f.invalidates, "Invalidate STag is %#x, for %v it is 0", stag, s.Op())
	odd.addIf(qn != f.qn && !s.IsTagged(), "QN is %d, for %v it is %d", qn, s.Op(), f.qn)
	single := !f.tagged && !f.payload
	odd.addIf(single && !packet.Get(s.DDP.Last, true), "L is false, %v is one segment", s.Op())
	odd.addIf(single && mo != 0, "MO is %d, %v is one segment", mo, s.Op())
}

// findHeaderOddities checks a segment whose opcode requires an RDMAP header and no payload. It adds
// a missing header, octets after the header, and unusual values of an atomic.
func (s Segment) findHeaderOddities(odd *oddities, f form) {
	if f.payload || s.IsTagged() {
		return
	}
	hasHeader := s.Read != nil || s.Terminate != nil || s.AtomicRequest != nil || s.AtomicResponse != nil || s.Immediate != nil
	n := len(s.Payload)
	odd.addIf(!hasHeader, "the header of %v is %d octets, of which there are %d", s.Op(), f.header, n)
	odd.addIf(hasHeader && n > 0, "%d octets behind the header of %v", n, s.Op())
	if a := s.AtomicRequest; a != nil {
		op := Val(a.Operation)
		odd.addUnless("reserved bits of the atomic", Val(a.Reserved), 0)
		odd.addIf(op != AtomicFetchAdd && op != AtomicCompareSwap, "atomic operation %d is not assigned", op)
	}
}

// findOddities adds unusual values of the header of a Terminate s; h is nil in other segments.
func (h *TerminateHeader) findOddities(odd *oddities, s Segment) {
	if h == nil {
		return
	}
	odd.addUnless("MSN of TERMINATE", packet.Get(s.DDP.MSN, firstMSN), firstMSN)
	odd.addUnless("reserved bits of TERMINATE", Val(h.Reserved), 0)
	c := Val(h.Cause)
	odd.addIf(!c.Listed(), "cause %d/%d/%02x is in no list", c.Layer(), c.Type(), c.Code())
	odd.addIf(Val(h.LengthValid) && h.SegmentLength == nil, "M is set and no length is there")
	odd.addIf(Val(h.HasDDP) && h.DDPHeader == nil, "D is set and no DDP header is there")
	odd.addIf(Val(h.HasRDMAP) && h.RDMAPHeader == nil, "R is set and no RDMAP header is there")
}

type oddities []string

func (o *oddities) addf(format string, args ...any) { *o = append(*o, fmt.Sprintf(format, args...)) }

// addIf adds a formatted description if cond is true.
func (o *oddities) addIf(cond bool, format string, args ...any) {
	if cond {
		o.addf(format, args...)
	}
}

// addUnless adds a field that does not have its usual value.
func (o *oddities) addUnless(field string, got, usual any) {
	o.addIf(fmt.Sprint(got) != fmt.Sprint(usual), "%s: %v instead of %v", field, got, usual)
}
