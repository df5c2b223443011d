package random

import (
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// When a reliable queue pair fails, its requests are flushed. The peer cannot detect that,
// therefore it gets a note and stops as well.

// handleFailure handles a completion with an error. Retries may be exhausted if the network
// permits it; all later requests must be flushed.
func (s *sender) handleFailure(wc *verbs.WC, n int) error {
	o := &s.plan.ops[n]
	s.completedBefore++
	if o.shared {
		s.lane.end.words.requestFlushed()
	}
	if s.flushing || s.qpFailed && wc.Status == verbs.WCWRFlushErr {
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
	s.failStatus = wc.Status
	if s.qpFailed {
		return nil // the requests of the peer have failed as well
	}
	return s.lane.requestsFailed()
}

// postDrainMarker posts a request after all others to a queue pair in the error state. Its
// flush shows that all requests before it, unsignaled ones too, have completed.
func (s *sender) postDrainMarker() error {
	s.drainPending = true
	wr := verbs.SendWR{WRID: uint64(s.lane.index)<<laneShift | markerBit, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	if _, err := s.lane.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return fmt.Errorf("marker on a queue pair in the error state: %w", err)
	}
	return nil
}

// drainMarkerFlushed handles the flush of the marker.
func (s *sender) drainMarkerFlushed(wc *verbs.WC) error {
	if !s.drainPending || wc.Status != verbs.WCWRFlushErr {
		return s.violation(nil, 0, "the marker flushed", wc.Status.String())
	}
	s.drainPending = false
	for s.completedBefore < s.posted {
		if err := s.finishUnsignaled(s.completedBefore); err != nil {
			return err
		}
	}
	return nil
}

// requestsFailed stops a lane whose requests have exhausted their retries. An RC queue pair
// fails in both directions, an XRC lane in one.
func (l *lane) requestsFailed() error {
	l.outgoing.qpFailed = true
	if l.spec.Service == RC {
		l.incoming.peerStopped()
	}
	return l.end.sendNote(note{Kind: noteFailed, Lane: l.index})
}

// peerRequestsFailed stops a lane after the failure of the peer's requests. Packets under
// way may still arrive; moving the queue pair to the error state ends that.
func (l *lane) peerRequestsFailed() error {
	l.incoming.peerStopped()
	if l.spec.Service == RC {
		if l.outgoing.qpFailed {
			return nil
		}
		l.outgoing.qpFailed = true
	}
	if err := l.toError(l.receiver()); err != nil || l.spec.Service != RC {
		return err
	}
	return l.outgoing.postDrainMarker()
}

// toError moves a queue pair to the error state, which flushes its queues.
func (l *lane) toError(qp verbs.QP) error {
	l.errorExpected = true
	return traffic.ToError(qp)
}

// receiveFailed handles a receive that completed with an error. It may be polled before the
// send completion with the cause, which is in another queue.
func (l *lane) receiveFailed(wc *verbs.WC) error {
	from := l.end.side.Peer()
	if wc.Status == verbs.WCRemInvReqErr && l.spec.Service == UC && l.spec.SharedReceives && l.end.w.Network.Loses {
		return nil // an incomplete message; with an SRQ its receive is not reused
	}
	if wc.Status != verbs.WCWRFlushErr {
		return l.violation(from, 0, nil, "a message", "a receive completed with "+wc.Status.String())
	}
	if !l.errorExpected && !l.outgoing.qpFailed && !l.end.w.Network.GivesUp {
		return l.violation(from, 0, nil, "a message", "a receive was flushed")
	}
	l.flushes++
	return nil
}
