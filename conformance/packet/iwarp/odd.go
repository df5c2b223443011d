package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Oddities lists unusual values of a segment as text. Cases decide whether one is an error.
func (s Segment) Oddities() []string {
	var odd oddities
	if s.Verbatim != nil {
		odd.addf("a segment of %d octets is too short for its header", len(s.Verbatim))
		return odd
	}
	f, ok := s.Op().form()
	if !ok {
		odd.addf("opcode %d is not assigned", s.Op())
	}
	s.oddControl(&odd, f, ok)
	s.oddHeader(&odd, f)
	s.Terminate.odd(&odd, s)
	return odd
}

func (s Segment) oddControl(odd *oddities, f form, known bool) {
	odd.unless("DV", packet.Get(s.DDP.Version, version), version)
	odd.unless("RV", packet.Get(s.RDMAP.Version, version), version)
	odd.unless("reserved bits of DDP", Val(s.DDP.Reserved), 0)
	odd.unless("reserved bits of RDMAP", Val(s.RDMAP.Reserved), 0)
	if !known {
		return
	}
	if got := packet.Get(s.DDP.Tagged, f.tagged); got != f.tagged {
		odd.addf("T is %t, for %v it is %t", got, s.Op(), f.tagged)
	}
	if stag := Val(s.RDMAP.InvalidateSTag); stag != 0 && !f.invalidates {
		odd.addf("Invalidate STag is %#x, for %v it is 0", stag, s.Op())
	}
	if qn := packet.Get(s.DDP.QN, f.qn); qn != f.qn && !s.IsTagged() {
		odd.addf("QN is %d, for %v it is %d", qn, s.Op(), f.qn)
	}
	if !f.tagged && !f.payload {
		if !packet.Get(s.DDP.Last, true) {
			odd.addf("L is false, %v is one segment", s.Op())
		}
		if mo := Val(s.DDP.MO); mo != 0 {
			odd.addf("MO is %d, %v is one segment", mo, s.Op())
		}
	}
}

// oddHeader checks messages with an RDMAP header and no payload.
func (s Segment) oddHeader(odd *oddities, f form) {
	if f.payload || s.IsTagged() {
		return
	}
	there := s.Read != nil || s.Terminate != nil || s.AtomicRequest != nil || s.AtomicResponse != nil || s.Immediate != nil
	switch n := len(s.Payload); {
	case !there:
		odd.addf("the header of %v is %d octets, of which there are %d", s.Op(), f.header, n)
	case n > 0:
		odd.addf("%d octets behind the header of %v", n, s.Op())
	}
	if a := s.AtomicRequest; a != nil {
		odd.unless("reserved bits of the atomic", Val(a.Reserved), 0)
		if op := Val(a.Operation); op != AtomicFetchAdd && op != AtomicCompareSwap {
			odd.addf("atomic operation %d is not assigned", op)
		}
	}
}

func (h *TerminateHeader) odd(odd *oddities, s Segment) {
	if h == nil {
		return
	}
	odd.unless("MSN of TERMINATE", packet.Get(s.DDP.MSN, firstMSN), firstMSN)
	odd.unless("reserved bits of TERMINATE", Val(h.Reserved), 0)
	if c := Val(h.Cause); !c.Listed() {
		odd.addf("cause %d/%d/%02x is in no list", c.Layer(), c.Type(), c.Code())
	}
	if Val(h.LengthValid) && h.SegmentLength == nil {
		odd.addf("M is set and no length is there")
	}
	if Val(h.HasDDP) && h.DDPHeader == nil {
		odd.addf("D is set and no DDP header is there")
	}
	if Val(h.HasRDMAP) && h.RDMAPHeader == nil {
		odd.addf("R is set and no RDMAP header is there")
	}
}

type oddities []string

func (o *oddities) addf(format string, args ...any) { *o = append(*o, fmt.Sprintf(format, args...)) }

// unless adds a field that does not have its usual value.
func (o *oddities) unless(field string, got, always any) {
	if fmt.Sprint(got) != fmt.Sprint(always) {
		o.addf("%s: %v instead of %v", field, got, always)
	}
}
