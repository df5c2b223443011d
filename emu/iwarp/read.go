package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// sendRead builds the Read Request of r, a single segment, and reports false if r fails locally.
// The request names the first non-empty SGE as the data sink; the tagged offsets of the response
// continue past its end for the other SGEs. A read that is the RTR message of the start-up is
// allowed even if the ORD is 0.
func (s *Stream) sendRead(r *Request, g *Segment) bool {
	switch {
	case s.ord == 0 && !r.RTR:
		s.failRequest(r, verbs.WCLocQPOpErr)
		return false
	case !s.ep.Layer.NIC.Writable(r.SGL, s.ep.PD, int(r.Length)):
		s.failRequest(r, verbs.WCLocProtErr)
		return false
	}
	sinkSTag, sinkTO := sink(r)
	s.startReadOrAtomic(r, g, wire.OpReadRequest)
	g.Header = wire.ReadRequest{
		SinkSTag: sinkSTag, SinkTO: sinkTO, Size: r.Length,
		SrcSTag: wire.STag(r.Remote.RKey), SrcTO: r.Remote.Addr,
	}.Append(g.Header)
	return true
}

// sink returns STag and tagged offset of the data sink of r: its first non-empty SGE, else zeros.
func sink(r *Request) (wire.STag, uint64) {
	for i := range r.SGL {
		if e := &r.SGL[i]; e.Length > 0 {
			return wire.STag(e.LKey), e.Addr
		}
	}
	return 0, 0
}

// startReadOrAtomic appends the header of a Read or Atomic Request and counts r as outstanding.
func (s *Stream) startReadOrAtomic(r *Request, g *Segment, op wire.Opcode) {
	r.msn = s.sendMSN[wire.QueueReadRequest]
	g.Header = s.untagged(g.Header, op, wire.QueueReadRequest)
	r.stage = requested
	s.outstanding++
	if s.oldestOutstanding == nil {
		s.oldestOutstanding = r
	}
	s.advanceRequest(r)
}

// receiveReadResponse places a segment of a Read Response, which must belong to the oldest
// outstanding read. Policies imitate devices that check less than RFC 5040 requires (only the first
// segment, not the total length) or more (the sink of an empty response).
func (s *Stream) receiveReadResponse(a *rxSegment) {
	r, policy := s.oldestOutstanding, s.policy()
	if r == nil || r.Op != verbs.OpRDMARead {
		e := wire.TermOpOpcode
		if policy.Terminate.UnexpectedIsLocal {
			e = wire.TermDDPLocal
		}
		s.refuseResponse(e, a)
		return
	}
	off, n := r.received, uint32(len(a.body))
	if n > 0 && (off == 0 || !policy.CheckFirstResponse) {
		var e wire.TermError
		var ok bool
		if off, e, ok = s.sinkOffset(r, a); !ok {
			s.refuseResponse(e, a)
			return
		}
	}
	if stag, to := sink(r); n == 0 && policy.CheckEmptyResponse && a.hdr.Tagged != (wire.Tagged{STag: stag, TO: to + uint64(r.received)}) {
		s.refuseResponse(wire.TermTaggedSTag, a)
		return
	}
	// The total length is checked too, so that overlapping segments cannot go on forever.
	if n > r.Length-off || n > r.Length-r.received {
		s.refuseResponse(wire.TermTaggedBounds, a)
		return
	}
	if err := s.ep.Layer.NIC.Scatter(r.SGL, s.ep.PD, off, a.body); err != nil {
		r.status = verbs.WCLocProtErr
		s.refuse(wire.TermTaggedSTag, a) // memory of the sink is no longer valid
		return
	}
	r.received += n
	if !a.hdr.Control.Last {
		return
	}
	if r.received != r.Length && !policy.AcceptShortResponse {
		s.refuseResponse(wire.TermTaggedBounds, a)
		return
	}
	s.completeResponse(r)
}

// sinkOffset returns the offset of a Read Response segment in the data sink of r, or the Terminate
// error if the segment does not start in the sink. Callers check the segment's end.
func (s *Stream) sinkOffset(r *Request, a *rxSegment) (uint32, wire.TermError, bool) {
	stag, base := sink(r)
	to, n := a.hdr.Tagged.TO, uint64(len(a.body))
	switch {
	case a.hdr.Tagged.STag != stag:
		return 0, wire.TermTaggedSTag, false
	case wraps(to, n):
		return 0, wire.TermTaggedWrap, false
	case to-base >= uint64(r.Length): // also if to is less than base
		return 0, wire.TermTaggedBounds, false
	}
	return uint32(to - base), wire.TermError{}, true
}

// refuseResponse ends the stream for a response that does not match the oldest outstanding request,
// or if there is none. The request fails with WCBadRespErr.
func (s *Stream) refuseResponse(e wire.TermError, a *rxSegment) {
	if s.oldestOutstanding != nil {
		s.oldestOutstanding.status = verbs.WCBadRespErr
	}
	s.refuse(e, a)
}

// completeResponse marks r, the oldest outstanding request, as done and finds the next one.
func (s *Stream) completeResponse(r *Request) {
	s.counters().ResponsesReceived++
	r.stage = done
	s.outstanding--
	next := r.next
	for next != nil && next != s.sending && next.stage != requested {
		next = next.next
	}
	if next == s.sending { // s.sending and later requests have not been sent
		next = nil
	}
	s.oldestOutstanding = next
	s.complete()
}
