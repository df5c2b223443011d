package random

import (
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// completed handles the completion of request n.
func (s *sender) completed(wc *verbs.WC, n int) error {
	if n < s.completedBefore || n >= s.posted {
		return s.violation(nil, n, "a completion of a request that is posted and has not completed",
			fmt.Sprintf("completion of request %d, with %d..%d outstanding", n, s.completedBefore, s.posted-1))
	}
	o := &s.plan.ops[n]
	s.lane.end.trace("lane %d completed %d: %v", s.lane.index, n, wc.Status)
	for s.completedBefore < n {
		if err := s.finishUnsignaled(s.completedBefore); err != nil {
			return err
		}
	}
	if wc.QPN != s.lane.qp.QPN() {
		return s.violation(o, n, fmt.Sprintf("QP %#x in the completion", s.lane.qp.QPN()), fmt.Sprintf("QP %#x", wc.QPN))
	}
	if wc.Status != verbs.WCSuccess {
		return s.handleFailure(wc, n)
	}
	if s.flushing && !o.local() {
		return s.violation(o, n, "only flushed requests once one has failed", "success")
	}
	if o.flags&verbs.SendSignaled == 0 {
		return s.violation(o, n, "no completion of an unsignaled request", "one")
	}
	if wc.Opcode != traffic.CompletionOf(o.code) {
		return s.violation(o, n, traffic.CompletionOf(o.code).String(), wc.Opcode.String())
	}
	if o.returnsData() && int(wc.ByteLen) != o.size {
		return s.violation(o, n, fmt.Sprintf("%d bytes", o.size), fmt.Sprintf("completion with %d bytes", wc.ByteLen))
	}
	return s.finishRequest(n)
}

// finishUnsignaled completes an unsignaled request because a later one has completed.
func (s *sender) finishUnsignaled(n int) error {
	o := &s.plan.ops[n]
	if o.flags&verbs.SendSignaled != 0 {
		return s.violation(o, n, "completions in the order of posting", "a later request completed first")
	}
	if s.flushing && !o.local() {
		return s.violation(o, n, "a flush completion of every request after the one that failed", "none")
	}
	return s.finishRequest(n)
}

// finishRequest completes the oldest request, and checks its result.
func (s *sender) finishRequest(n int) error {
	s.completedBefore++
	if !s.flushing {
		s.succeeded++
	}
	o := &s.plan.ops[n]
	if o.local() {
		s.bound = o.code == verbs.OpBindMW
	}
	if !o.local() && o.code != verbs.OpFlush {
		s.bytes += int64(o.size)
	}
	if !o.returnsData() {
		return nil
	}
	index, base := s.slot(n)
	mem := s.buf[base : base+s.size]
	s.pieces = s.fetchPieces(n)
	if !untouched(mem, s.pieces, o.size) {
		return s.violation(o, n, "only the bytes asked for", "bytes beside them were written").as(traffic.Contents)
	}
	got := s.scratch[:o.size]
	gather(got, mem, s.pieces)
	if o.shared {
		s.lane.end.words.atomicCompleted(s.lane.index, n, o, word(got))
		return nil
	}
	if diff := traffic.FirstDifference(s.wants[index], got); diff != "" {
		return s.violation(o, n, "what the requests before it left there", diff).as(traffic.Contents)
	}
	return nil
}

func (s *sender) violation(o *op, n int, want, got string) *Violation {
	return s.lane.violation(s.from, n, o, want, got)
}
