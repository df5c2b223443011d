package traffic

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// What happens when a reliable queue pair gives up: its requests are flushed,
// and the peer, who cannot know, is told and follows.

// unsuccessful takes a completion in error. Retries may run out where the
// network is that bad; then everything behind is flushed.
func (s *sender) unsuccessful(wc *verbs.WC, n int) error {
	o := &s.plan.ops[n]
	s.settled++
	if o.shared {
		s.lane.end.words.lost()
	}
	if s.flushing || s.dead && wc.Status == verbs.WCWRFlushErr {
		s.flushing = true
		if wc.Status != verbs.WCWRFlushErr {
			return s.violation(o, n, verbs.WCWRFlushErr.String(), wc.Status.String())
		}
		return nil
	}
	gaveUp := wc.Status == verbs.WCRetryExcErr || wc.Status == verbs.WCRNRRetryExcErr
	if !gaveUp || !s.lane.end.w.Network.GivesUp || !s.lane.spec.Service.Reliable() {
		return s.violation(o, n, verbs.WCSuccess.String(), wc.Status.String())
	}
	s.flushing = true
	s.failed = wc.Status
	if s.dead {
		return nil // the peer had given up as well
	}
	return s.lane.gaveUp()
}

// mark posts a request behind all others to a queue pair that was shut. Requests
// that completed without a signal say nothing, so its flush is what tells that
// everything before it is over.
func (s *sender) mark() error {
	s.marked = true
	wr := verbs.SendWR{WRID: uint64(s.lane.num)<<laneShift | markerBit, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	if _, err := s.lane.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return fmt.Errorf("marker on a queue pair in the error state: %w", err)
	}
	return nil
}

// unmark takes the flush of the marker.
func (s *sender) unmark(wc *verbs.WC) error {
	if !s.marked || wc.Status != verbs.WCWRFlushErr {
		return s.violation(nil, 0, "the marker flushed", wc.Status.String())
	}
	s.marked = false
	for s.settled < s.posted {
		if err := s.settleSilently(s.settled); err != nil {
			return err
		}
	}
	return nil
}

// gaveUp is called when the lane's own requests have failed for want of retries.
// An RC queue pair goes down with both directions; of an XRC lane only one is
// lost.
func (l *lane) gaveUp() error {
	l.out.dead = true
	if l.spec.Service == RC {
		l.in.end()
	}
	return l.end.tell(note{Kind: noteFailed, Lane: l.num})
}

// peerGaveUp is called when the peer's requests have failed. What it had under
// way may still arrive; to have an end of that, the receiving side is shut.
func (l *lane) peerGaveUp() error {
	l.in.end()
	if l.spec.Service == RC {
		if l.out.dead {
			return nil
		}
		l.out.dead = true
	}
	if err := l.shut(l.receiver()); err != nil || l.spec.Service != RC {
		return err
	}
	return l.out.mark()
}

// shut takes a queue pair to the error state: whatever it has queued completes
// as flushed.
func (l *lane) shut(qp verbs.QP) error {
	l.shutting = true
	return qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
}

// flushed takes a receive that completed in error. It may come before the
// completion that tells why: that one is in another queue.
func (l *lane) flushed(wc *verbs.WC) error {
	from := l.end.side.Peer()
	if wc.Status == verbs.WCRemInvReqErr && l.spec.Service == UC && l.spec.SharedReceives && l.end.w.Network.Loses {
		return nil // a message broke off; others wait for receives, so this one is not kept for the next
	}
	if wc.Status != verbs.WCWRFlushErr {
		return &Violation{Where: l.where(from, 0, nil), Want: "a message", Got: "a receive completed with " + wc.Status.String()}
	}
	if !l.shutting && !l.out.dead && !l.end.w.Network.GivesUp {
		return &Violation{Where: l.where(from, 0, nil), Want: "a message", Got: "a receive was flushed"}
	}
	l.flushes++
	return nil
}
