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
		s.Terminate.describe(&l)
	} else {
		s.describePlace(&l)
		s.describeHeaders(&l)
		s.describeData(&l)
	}
	s.describeOddControl(&l)
	return l.String()
}

func (s Segment) describePlace(l *packet.Line) {
	packet.AddField(l, "stag %#x", s.DDP.STag)
	packet.AddField(l, "to %#x", s.DDP.TO)
	packet.AddField(l, "msn %d", s.DDP.MSN)
	if Val(s.DDP.MO) != 0 {
		packet.AddField(l, "mo %d", s.DDP.MO)
	}
	if Val(s.RDMAP.InvalidateSTag) != 0 {
		packet.AddField(l, "invalidate %#x", s.RDMAP.InvalidateSTag)
	}
}

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
	if t := s.DDP.Tagged; t != nil && known && *t != f.tagged {
		l.Addf("T=%t", *t)
	}
	if qn := s.DDP.QN; qn != nil && *qn != f.qn {
		l.Addf("qn %d", *qn)
	}
	for _, x := range []struct {
		name   string
		v      *uint8
		always uint8
	}{
		{"dv", s.DDP.Version, version},
		{"rv", s.RDMAP.Version, version},
		{"ddp-reserved", s.DDP.Reserved, 0},
		{"rdmap-reserved", s.RDMAP.Reserved, 0},
	} {
		if x.v != nil && *x.v != x.always {
			l.Addf("%s %#x", x.name, *x.v)
		}
	}
}

func (h *TerminateHeader) describe(l *packet.Line) {
	packet.AddField(l, "%v", h.Cause)
	if wrong, ok := h.QuotedSegment(); ok {
		l.Addf("about %v", wrong)
	}
}

func place(stag *uint32, to *uint64) string {
	return fmt.Sprintf("%s+%s", hexOrAny(stag), hexOrAny(to))
}

func hexOrAny[T uint32 | uint64](v *T) string {
	if v == nil {
		return "any"
	}
	return fmt.Sprintf("%#x", *v)
}
