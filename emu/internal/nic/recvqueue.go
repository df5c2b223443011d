package nic

import (
	"fmt"
	"math/bits"

	"github.com/fabrictest/fabrictest/verbs"
)

// Receive is a posted receive work request.
type Receive struct {
	WRID   uint64
	SGL    []verbs.SGE
	Length uint32 // total length of SGL
}

// RecvQueue is a ring of receive work requests, of a QP or of an SRQ.
type RecvQueue struct {
	ring   []Receive // has room for depth receives once so many have been posted
	sges   []verbs.SGE
	depth  uint32
	maxSGE int
	head   uint32
	tail   uint32
}

// NewRecvQueue returns a queue of depth receives with up to maxSGE entries each.
func NewRecvQueue(depth, maxSGE int) RecvQueue {
	return newRecvQueue(depth, maxSGE, min(CeilPow2(depth), firstRing))
}

// firstRing is the number of entries that the ring of a queue has room for at first. Most queues
// never have as many entries as they may, and a small simulation would spend much time on clearing memory.
const firstRing = 16

// newRecvQueue returns a queue whose ring has room for a number of receives, a power of two.
func newRecvQueue(depth, maxSGE, room int) RecvQueue {
	return RecvQueue{ring: make([]Receive, room), sges: make([]verbs.SGE, room*maxSGE), depth: uint32(depth), maxSGE: maxSGE}
}

// Count returns the number of posted receives.
func (q *RecvQueue) Count() uint32 { return q.tail - q.head }

// MaxSGE returns the maximum number of scatter entries of a receive.
func (q *RecvQueue) MaxSGE() int { return q.maxSGE }

// Overfull reports whether the queue exceeds its ring, which is a bug.
func (q *RecvQueue) Overfull() bool { return q.Count() > uint32(len(q.ring)) }

// String describes the fill level.
func (q *RecvQueue) String() string {
	return fmt.Sprintf("%d..%d of %d", q.head, q.tail, len(q.ring))
}

// Clear removes all receives.
func (q *RecvQueue) Clear() { q.head, q.tail = 0, 0 }

// Post adds a copy of wr.
func (q *RecvQueue) Post(wr *verbs.RecvWR) error {
	switch {
	case len(wr.SGL) > q.maxSGE:
		return OpError("post_recv", "", "%w: %d scatter entries, limit %d", verbs.ErrInvalid, len(wr.SGL), q.maxSGE)
	case q.Count() >= q.depth:
		return OpError("post_recv", "", "%w: %d receives queued", verbs.ErrNoMemory, q.depth)
	}
	if q.Count() == uint32(len(q.ring)) {
		*q = q.moved(newRecvQueue(int(q.depth), q.maxSGE, 2*len(q.ring)))
	}
	q.put(wr)
	return nil
}

// put copies a work request to the tail of the ring, which must have room.
func (q *RecvQueue) put(wr *verbs.RecvWR) {
	i := int(q.tail) & (len(q.ring) - 1)
	w := &q.ring[i]
	w.WRID = wr.WRID
	w.SGL = append(q.sges[i*q.maxSGE:i*q.maxSGE:(i+1)*q.maxSGE], wr.SGL...)
	w.Length = sgeLength(wr.SGL)
	q.tail++
}

// Peek returns the oldest receive, or nil. The result is valid until Post reuses its slot.
func (q *RecvQueue) Peek() *Receive {
	if q.Count() == 0 {
		return nil
	}
	return &q.ring[int(q.head)&(len(q.ring)-1)]
}

// Take removes the oldest receive.
func (q *RecvQueue) Take() { q.head++ }

// resized returns a queue with another depth, and moves the receives of q to it.
func (q *RecvQueue) resized(depth int) RecvQueue {
	return q.moved(newRecvQueue(depth, q.maxSGE, CeilPow2(max(min(depth, firstRing), int(q.Count())))))
}

// moved returns the queue to, whose ring has room for them, with the receives of q.
func (q *RecvQueue) moved(to RecvQueue) RecvQueue {
	for q.Count() > 0 {
		w := q.Peek()
		to.put(&verbs.RecvWR{WRID: w.WRID, SGL: w.SGL})
		q.Take()
	}
	return to
}

// sgeLength returns the total length of sgl, at most 2^32-1.
func sgeLength(sgl []verbs.SGE) uint32 {
	var n uint64
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return uint32(min(n, 1<<32-1))
}

// CeilPow2 returns the smallest power of two that is at least n.
func CeilPow2(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }
