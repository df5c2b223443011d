package random

import (
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// completed checks the completion of request n, and finishes that request and the unsignaled ones
// before it. A completion that the plan does not permit is a violation.
func (s *sender) completed(wc *verbs.WC, n int) error {
	if n < s.completedBefore || n >= s.posted {
		return s.violation(noRequest, "a completion of a request that is posted and has not completed",
			fmt.Sprintf("completion of request %d, with %d..%d outstanding", n, s.completedBefore, s.posted-1))
	}
	o := &s.plan.ops[n]
	s.conn.end.trace("connection %d completed %d: %v", s.conn.index, n, wc.Status)
	for s.completedBefore < n {
		if err := s.finishUnsignaled(s.completedBefore); err != nil {
			return err
		}
	}
	if wc.QPN != s.conn.QP.QPN() {
		return s.violation(n, fmt.Sprintf("QP %#x in the completion", s.conn.QP.QPN()), fmt.Sprintf("QP %#x", wc.QPN))
	}
	if wc.Status != verbs.WCSuccess {
		return s.handleFailure(wc, n)
	}
	// A bind or an invalidation needs no response: it may have been executed before the failure.
	if s.flushing && !o.local() {
		return s.violation(n, "only flushed requests once one has failed", "success")
	}
	if o.flags&verbs.SendSignaled == 0 {
		return s.violation(n, "no completion of an unsignaled request", "one")
	}
	if wc.Opcode != traffic.CompletionOf(o.code) {
		return s.violation(n, traffic.CompletionOf(o.code).String(), wc.Opcode.String())
	}
	if o.returnsData() && int(wc.ByteLen) != o.size {
		return s.violation(n, fmt.Sprintf("%d bytes", o.size), fmt.Sprintf("completion with %d bytes", wc.ByteLen))
	}
	return s.finishRequest(n)
}

// finishUnsignaled completes an unsignaled request because a later one has completed. It is a violation
// if the request is signaled, or if the queue pair flushes, since unsignaled requests complete then,
// too; but a bind or an invalidation may have succeeded before the failure.
func (s *sender) finishUnsignaled(n int) error {
	o := &s.plan.ops[n]
	if o.flags&verbs.SendSignaled != 0 {
		return s.violation(n, "completions in the order of posting", "a later request completed first")
	}
	if s.flushing && !o.local() {
		return s.violation(n, "a flush completion of every request after the one that failed", "none")
	}
	return s.finishRequest(n)
}

// finishRequest counts request n, the oldest, as completed. It checks data that n has fetched.
func (s *sender) finishRequest(n int) error {
	s.completedBefore++
	if !s.flushing { // succeeded counts the requests before the first failure only
		s.succeeded++
	}
	o := &s.plan.ops[n]
	if o.local() { // a bind or an invalidation of the spare window
		s.spareBound = o.code == verbs.OpBindMW
	}
	if !o.local() && o.code != verbs.OpFlush { // binds, invalidations and flushes move no data
		s.bytes += int64(o.size)
	}
	if !o.returnsData() {
		return nil
	}
	index, base := s.slot(n)
	mem := s.buf[base : base+s.size]
	s.pieces = s.fetchPieces(n)
	if !untouched(mem, s.pieces, o.size) {
		return s.violation(n, "only the bytes asked for", "bytes beside them were written").as(traffic.Contents)
	}
	got := s.scratch[:o.size]
	gather(got, mem, s.pieces)
	if o.shared {
		s.conn.end.words.atomicCompleted(s.conn.index, n, o, word(got))
		return nil
	}
	if diff := traffic.FirstDifference(s.wants[index], got); diff != "" {
		return s.violation(n, "what the requests before it left there", diff).as(traffic.Contents)
	}
	return nil
}

// handleFailure handles a completion with an error, which must be a flush after an earlier failure
// or, if Network.GivesUp, the exhausted retries of a reliable connection. After exhausted retries a
// control message makes the peer stop as well, because the peer cannot detect the failure.
func (s *sender) handleFailure(wc *verbs.WC, n int) error {
	o := &s.plan.ops[n]
	s.completedBefore++
	if o.shared { // it may have been executed or not
		s.conn.end.words.changeMayBeMissing = true
	}
	if s.flushing || s.qpFailed && wc.Status == verbs.WCWRFlushErr {
		s.flushing = true
		if wc.Status != verbs.WCWRFlushErr {
			return s.violation(n, verbs.WCWRFlushErr.String(), wc.Status.String())
		}
		return nil
	}
	gaveUp := wc.Status == verbs.WCRetryExcErr || wc.Status == verbs.WCRNRRetryExcErr
	if !gaveUp || !s.conn.end.w.Network.GivesUp || !s.conn.spec.Service.Reliable() {
		return s.violation(n, verbs.WCSuccess.String(), wc.Status.String())
	}
	s.flushing = true
	s.failStatus = wc.Status
	if s.qpFailed {
		return nil // the peer has reported a failure itself: it need not be told
	}
	// An RC queue pair fails in both directions, an XRC connection in one.
	s.qpFailed = true
	if s.conn.spec.Service == RC {
		s.conn.incoming.peerStopped()
	}
	return s.conn.end.sendControl(controlMessage{Kind: controlFailed, Conn: s.conn.index})
}

// postDrainMarker posts a request after all others to a queue pair in the error state. Its
// flush shows that all requests before it, unsignaled ones too, have completed.
func (s *sender) postDrainMarker() error {
	s.drainPending = true
	wr := verbs.SendWR{WRID: uint64(s.conn.index)<<connShift | markerBit, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	if _, err := s.conn.QP.PostSend([]verbs.SendWR{wr}); err != nil {
		return fmt.Errorf("post the drain marker to a queue pair in the error state: %w", err)
	}
	return nil
}

// drainMarkerFlushed handles the completion of the drain marker, the last request of a failed queue
// pair, and finishes the unsignaled requests before it.
func (s *sender) drainMarkerFlushed(wc *verbs.WC) error {
	if !s.drainPending || wc.Status != verbs.WCWRFlushErr {
		return s.violation(noRequest, "the marker flushed", wc.Status.String())
	}
	s.drainPending = false
	for s.completedBefore < s.posted {
		if err := s.finishUnsignaled(s.completedBefore); err != nil {
			return err
		}
	}
	return nil
}

// peerRequestsFailed stops a connection after the failure of the peer's requests. It moves the
// queue pair to the error state, so that late packets have no effect. On RC this also flushes the
// requests of this end, and a marker shows when all are flushed.
func (c *conn) peerRequestsFailed() error {
	c.incoming.peerStopped()
	if c.spec.Service == RC {
		if c.outgoing.qpFailed {
			return nil // the queue pair is in the error state already
		}
		c.outgoing.qpFailed = true
	}
	c.errorExpected = true
	if err := traffic.ToError(c.Receiver()); err != nil || c.spec.Service != RC {
		return err
	}
	return c.outgoing.postDrainMarker()
}

// receiveFailed returns a violation if a receive completed with an error that was not expected.
// With Network.GivesUp a flush is expected too: it may be polled before the send that failed.
func (c *conn) receiveFailed(wc *verbs.WC) error {
	from := c.end.side.Peer()
	if wc.Status == verbs.WCRemInvReqErr && c.spec.Service == UC && c.spec.SharedReceives && c.end.w.Network.Loses {
		return nil // an incomplete message; with an SRQ its receive is not reused
	}
	if wc.Status != verbs.WCWRFlushErr {
		return c.violation(from, "a message", "a receive completed with "+wc.Status.String())
	}
	if !c.errorExpected && !c.outgoing.qpFailed && !c.end.w.Network.GivesUp {
		return c.violation(from, "a message", "a receive was flushed")
	}
	c.flushes++
	return nil
}
