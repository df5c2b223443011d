package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/queue"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// qpTimers orders QPs by their next deadline. Deadlines mostly move later, and
// often: a QP that asks to be woken later than its timer is set for is put right
// when that time comes.
type qpTimers struct{ queue.TimerHeap[QP] }

// due returns a QP whose deadline has passed, or nil.
func (h *qpTimers) due(now mono.Time) *QP {
	for q := h.PopExpired(now); q != nil; q = h.PopExpired(now) {
		at := q.deadline()
		if at <= now {
			return q
		}
		h.set(q, at) // it moved since
	}
	return nil
}

// set makes sure that q is woken at, or not long after, at. A timer that is not
// needed any more costs one look.
func (h *qpTimers) set(q *QP, at mono.Time) { h.SetIfEarlier(&q.timer, at) }

// qpQueue is a queue of QPs, each in it at most once.
type qpQueue struct{ queue.FIFO[*QP] }

func (l *qpQueue) push(q *QP) {
	if !q.queued {
		q.queued = true
		l.Push(q)
	}
}

func (l *qpQueue) pop() *QP {
	q, ok := l.Pop()
	if ok {
		q.queued = false
	}
	return q
}
