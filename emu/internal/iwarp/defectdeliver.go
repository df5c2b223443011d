package iwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// When and how often a layer that is Defects reports what has come.

// lateRecv is a receive that waits to be overtaken.
type lateRecv struct {
	Receive
	wc        verbs.WC
	solicited bool
}

// overlong is how much of the message under way found no place.
func (s *Stream) overlong() uint32 {
	if s.defectState == nil {
		return 0
	}
	return s.defectState.cut
}

// goesOn is for a segment of a Send that does not end it.
func (s *Stream) goesOn(wc verbs.WC, info *wire.Info) {
	f := s.defectState
	f.segments++
	if s.defects().DeliversFirstSegment && !f.delivered {
		f.delivered = true
		s.owner.Received(s.recv, wc, info.Class.Has(wire.Solicited))
	}
}

// deliverWrongly completes a receive too early, too late or twice.
func (s *Stream) deliverWrongly(r *Receive, wc verbs.WC, solicited bool) {
	f, defects := s.defectState, s.defects()
	long, delivered := f.segments > 0, f.delivered
	f.segments, f.delivered, f.cut = 0, false, 0
	if delivered {
		return
	}
	if defects.LongDeliveredLate && long && f.late == nil {
		f.late = &lateRecv{*r, wc, solicited}
		return
	}
	s.owner.Received(r, wc, solicited)
	if late := f.late; late != nil && s.state == open {
		f.late = nil
		s.owner.Received(&late.Receive, late.wc, late.solicited)
	}
	if defects.DeliversTwice && wc.Flags&verbs.WCWithImm == 0 && s.state == open {
		if again := s.owner.NextReceive(); again != nil {
			s.owner.Received(again, wc, solicited)
		}
	}
}

// takeAnyway completes a receive for a message that takes none.
func (s *Stream) takeAnyway() {
	if s.recv != nil {
		return
	}
	if r := s.owner.NextReceive(); r != nil {
		s.owner.Received(r, verbs.WC{Opcode: verbs.WCOpRecv}, false)
	}
}

// readGoesOn is for a segment that does not end the answer to r.
func (s *Stream) readGoesOn(r *Request) {
	s.defectState.long = r
	if s.defects().DeliversFirstSegment {
		rest := *r
		rest.SGL = slices.Clone(r.SGL)
		s.defectState.rest = &rest
		s.response(r)
	}
}

// placeRest places what comes of the answer to a read that is complete.
func (s *Stream) placeRest(a *arrival) bool {
	r := s.defectState.rest
	if r == nil {
		return false
	}
	n := min(uint32(len(a.body)), r.Length-r.got)
	_ = s.ep.Layer.NIC.Scatter(r.SGL, s.ep.PD, r.got, a.body[:n]) // nobody waits for it
	r.got += n
	if a.hdr.Control.Last {
		s.defectState.rest = nil
	}
	return true
}

// placeAnywhere places an answer where it says, if there is such a place, else
// where r wants it. It reports false if it cannot.
func (s *Stream) placeAnywhere(r *Request, a *arrival) bool {
	t, b := &a.hdr.Tagged, a.body
	if mem, at, err := s.ep.Layer.NIC.Mem.Local(verbs.LKey(t.STag), s.ep.PD, t.TO, uint64(len(b)), verbs.AccessLocalWrite); err == nil {
		if mem.WriteAt(b, at) != nil {
			return false
		}
	} else if uint32(len(b)) > r.Length-r.got || s.ep.Layer.NIC.Scatter(r.SGL, s.ep.PD, r.got, b) != nil {
		return false
	}
	r.got += min(uint32(len(b)), r.Length-r.got)
	if a.hdr.Control.Last {
		s.response(r)
	}
	return true
}

// completeLate reports a read whose answer had several segments when another has
// been.
func (s *Stream) completeLate(r *Request, status verbs.WCStatus) {
	f := s.defectState
	if status == verbs.WCSuccess && r == f.long && f.lateRead == nil {
		late := *r
		f.lateRead, f.long = &late, nil
		return
	}
	s.owner.Completed(r, status)
	if late := f.lateRead; late != nil && answered(r.Op) {
		f.lateRead = nil
		s.owner.Completed(late, verbs.WCSuccess)
	}
}

// giveBack reports what was held back, and gives up what was kept, since the
// stream ends.
func (s *Stream) giveBack() {
	f := s.defectState
	if late := f.lateRead; late != nil {
		f.lateRead = nil
		s.owner.Completed(late, verbs.WCSuccess)
	}
	if late := f.late; late != nil {
		f.late = nil
		s.owner.Received(&late.Receive, late.wc, late.solicited)
	}
	if f.delivered {
		s.recv = nil
	}
	if s.recv == nil {
		s.recv, f.spare = f.spare, nil
	}
}

// drop ignores a segment that is wrong, nil if it is none. Its message counts.
func (s *Stream) drop(a *arrival) {
	s.count().SegmentsDropped++
	if a == nil {
		return
	}
	info, known := a.hdr.Control.Opcode.Info()
	if !known || a.hdr.Control.Tagged || info.Tagged || !a.hdr.Control.Last {
		return
	}
	if a.hdr.Untagged.MSN == s.theirs[info.Queue] {
		s.arrived(info.Queue)
	}
	if s.parts != nil {
		s.parts[info.Queue].begun = false
	}
	if info.Queue == wire.QueueSend && s.recv != nil {
		s.defectState.spare, s.recv, s.filled = s.recv, nil, 0
	}
}
