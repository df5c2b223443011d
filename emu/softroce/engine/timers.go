package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// qpTimers orders QPs by deadline. Most deadlines move later often, so a later
// deadline does not update the heap; due corrects it.
type qpTimers struct{ nic.TimerHeap[QP] }

// due returns a QP whose deadline has passed, or nil.
func (h *qpTimers) due(now mono.Time) *QP {
	for q := h.PopExpired(now); q != nil; q = h.PopExpired(now) {
		at := q.deadline()
		if at <= now {
			return q
		}
		h.set(q, at) // the deadline was moved
	}
	return nil
}

// set makes due return q when at has passed. An unneeded earlier entry is skipped
// by due.
func (h *qpTimers) set(q *QP, at mono.Time) { h.SetIfEarlier(&q.timer, at) }

// qpQueue is a FIFO that holds each QP at most once.
type qpQueue struct{ nic.FIFO[*QP] }

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
