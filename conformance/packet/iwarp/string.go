package iwarp

import (
	"fmt"
	"strings"
)

// String formats the segment as a line of a ladder diagram: "WRITE stag 0x12 to 0x100 64 B
// last". It omits unset fields, and fields with their usual value.
func (s Segment) String() string {
	var l line
	if s.RDMAP.Opcode == nil {
		l.addf("SEGMENT")
	} else {
		l.addf("%v", s.Op())
	}
	if s.Verbatim != nil {
		l.addf("%d B, too short for its header", len(s.Verbatim))
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

func (s Segment) describePlace(l *line) {
	describe(l, "stag %#x", s.DDP.STag)
	describe(l, "to %#x", s.DDP.TO)
	describe(l, "msn %d", s.DDP.MSN)
	if Val(s.DDP.MO) != 0 {
		describe(l, "mo %d", s.DDP.MO)
	}
	if Val(s.RDMAP.InvalidateSTag) != 0 {
		describe(l, "invalidate %#x", s.RDMAP.InvalidateSTag)
	}
}

func (s Segment) describeHeaders(l *line) {
	if h := s.Read; h != nil {
		describe(l, "%d B", h.Size)
		l.addf("from %s to %s", place(h.SrcSTag, h.SrcTO), place(h.SinkSTag, h.SinkTO))
	}
	if h := s.AtomicRequest; h != nil {
		describe(l, "id %#x", h.ID)
		if Val(h.Operation) == AtomicCompareSwap {
			describe(l, "if %#x", h.Compare)
			describe(l, "swap in %#x", h.Data)
		} else {
			describe(l, "add %#x", h.Data)
		}
		l.addf("at %s", place(h.STag, h.TO))
	}
	if h := s.AtomicResponse; h != nil {
		describe(l, "id %#x", h.ID)
		describe(l, "was %#x", h.Original)
	}
	if h := s.Immediate; h != nil {
		describe(l, "%#x", h.Value)
	}
}

func (s Segment) describeData(l *line) {
	f, _ := s.Op().form()
	switch {
	case s.Payload != nil && (f.payload || len(s.Payload) > 0):
		l.addf("%d B", len(s.Payload))
	case s.Payload == nil:
		describe(l, "%d B", s.PayloadLen)
	}
	switch {
	case s.DDP.Last == nil:
	case !*s.DDP.Last:
		l.addf("more")
	case f.payload:
		l.addf("last")
	}
}

// describeOddControl adds control fields with unusual values.
func (s Segment) describeOddControl(l *line) {
	f, known := s.Op().form()
	if t := s.DDP.Tagged; t != nil && known && *t != f.tagged {
		l.addf("T=%t", *t)
	}
	if qn := s.DDP.QN; qn != nil && *qn != f.qn {
		l.addf("qn %d", *qn)
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
			l.addf("%s %#x", x.name, *x.v)
		}
	}
}

func (h *TerminateHeader) describe(l *line) {
	describe(l, "%v", h.Cause)
	if wrong, ok := h.QuotedSegment(); ok {
		l.addf("about %v", wrong)
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

// line joins words with spaces.
type line []string

func (l *line) addf(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l *line) String() string { return strings.Join(*l, " ") }

func describe[T any](l *line, format string, v *T) {
	if v != nil {
		l.addf(format, *v)
	}
}
