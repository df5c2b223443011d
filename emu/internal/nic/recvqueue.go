package nic

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Receive is a receive work request that waits.
type Receive struct {
	WRID   uint64
	SGL    []verbs.SGE
	Length uint32 // of all that SGL names
}

// RecvQueue is a ring of receive work requests, of a QP or of an SRQ.
type RecvQueue struct {
	ring   []Receive
	sges   []verbs.SGE
	depth  uint32
	maxSGE int
	head   uint32
	tail   uint32
}

// NewRecvQueue makes a queue of depth receives of up to maxSGE pieces each.
func NewRecvQueue(depth, maxSGE int) RecvQueue {
	slots := ceilPow2(depth)
	return RecvQueue{ring: make([]Receive, slots), sges: make([]verbs.SGE, slots*maxSGE), depth: uint32(depth), maxSGE: maxSGE}
}

// Count is how many receives wait.
func (q *RecvQueue) Count() uint32 { return q.tail - q.head }

// MaxSGE is how many pieces a receive may have.
func (q *RecvQueue) MaxSGE() int { return q.maxSGE }

// Overfull reports whether more receives wait than there is room for, which
// must never be.
func (q *RecvQueue) Overfull() bool { return q.Count() > uint32(len(q.ring)) }

// String says how full the queue is.
func (q *RecvQueue) String() string {
	return fmt.Sprintf("%d..%d of %d", q.head, q.tail, len(q.ring))
}

// Clear forgets all receives.
func (q *RecvQueue) Clear() { q.head, q.tail = 0, 0 }

// Post copies wr into the ring.
func (q *RecvQueue) Post(wr *verbs.RecvWR) error {
	switch {
	case len(wr.SGL) > q.maxSGE:
		return OpError("post_recv", "", "%w: %d scatter entries, limit %d", verbs.ErrInvalid, len(wr.SGL), q.maxSGE)
	case q.Count() >= q.depth:
		return OpError("post_recv", "", "%w: %d receives queued", verbs.ErrNoMemory, q.depth)
	}
	q.put(wr)
	return nil
}

func (q *RecvQueue) put(wr *verbs.RecvWR) {
	i := int(q.tail) & (len(q.ring) - 1)
	w := &q.ring[i]
	w.WRID = wr.WRID
	w.SGL = append(q.sges[i*q.maxSGE:i*q.maxSGE:(i+1)*q.maxSGE], wr.SGL...)
	w.Length = sgeLength(wr.SGL)
	q.tail++
}

// Peek returns the oldest receive, or nil. It stays valid until the slot is
// posted to again, which cannot happen before Take.
func (q *RecvQueue) Peek() *Receive {
	if q.Count() == 0 {
		return nil
	}
	return &q.ring[int(q.head)&(len(q.ring)-1)]
}

// Take removes the oldest receive.
func (q *RecvQueue) Take() { q.head++ }

// resized returns a queue of another depth with the same receives.
func (q *RecvQueue) resized(depth int) RecvQueue {
	out := NewRecvQueue(depth, q.maxSGE)
	for q.Count() > 0 {
		w := q.Peek()
		out.put(&verbs.RecvWR{WRID: w.WRID, SGL: w.SGL})
		q.Take()
	}
	return out
}

// sgeLength is the length of all that sgl names, as far as a message can be long.
func sgeLength(sgl []verbs.SGE) uint32 {
	var n uint64
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return uint32(min(n, 1<<32-1))
}

// ceilPow2 is the smallest power of two that is at least n, and at least 1.
func ceilPow2(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}
