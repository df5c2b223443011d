package traffic

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// RecvQueue is a queue pair or an SRQ.
type RecvQueue interface {
	PostRecv([]verbs.RecvWR) (posted int, err error)
}

// RecvRing is a set of receives that are reposted after they complete. It checks that each
// completes once, and those of a queue pair in the order of posting. The caller sets the
// memory of a slot in WRs before it is posted.
type RecvRing struct {
	WRs           []verbs.RecvWR // by slot
	Shared        bool           // several queue pairs receive from the queue
	queue         RecvQueue
	num           int
	seqs          []uint64 // by slot: sequence number, from 1; 0 if it is not posted
	posted        uint64   // sequence number of the last posted receive
	lastCompleted uint64   // highest sequence number that has completed
	free          []int    // slots, the next first
	batch         []verbs.RecvWR
}

// Work request IDs of receives have the top bit, the number of the ring, the lower bits of
// the sequence number, and the slot.
const (
	recvBit   = 1 << 63
	ringShift = 48
	seqShift  = 32
	seqMask   = 1<<(ringShift-seqShift) - 1
)

// RingOf returns the number of the ring in a work request ID; isRecv is false if the ID is not
// that of a ring's receive.
func RingOf(id uint64) (ring int, isRecv bool) {
	return int((id &^ recvBit) >> ringShift), id&recvBit != 0
}

// NewRecvRing returns a ring of receives with the given number of slots. num identifies the ring in
// work request IDs. If shared, its queue is an SRQ: receives may complete in any order.
func NewRecvRing(num, slots int, shared bool) *RecvRing {
	return &RecvRing{num: num, Shared: shared, WRs: make([]verbs.RecvWR, slots), seqs: make([]uint64, slots), batch: make([]verbs.RecvWR, 0, slots)}
}

// Attach sets the queue to post to, and frees all slots: it forgets the receives of an earlier
// queue, but sequence numbers continue.
func (r *RecvRing) Attach(queue RecvQueue) {
	r.queue, r.free, r.lastCompleted = queue, r.free[:0], r.posted
	for slot := range r.seqs {
		r.seqs[slot] = 0 // no receive
		r.free = append(r.free, slot)
	}
}

// Free returns the slots that can be posted, in the order in which Post takes them.
func (r *RecvRing) Free() []int { return r.free }

// Posted is the number of receives posted so far.
func (r *RecvRing) Posted() int { return int(r.posted) }

// Outstanding is the number of receives that have not completed.
func (r *RecvRing) Outstanding() int { return len(r.seqs) - len(r.free) }

// Post posts the receives of the next n free slots, and returns how many the device has accepted.
// Their work request IDs have recvBit, the number of the ring, the sequence number and the slot.
func (r *RecvRing) Post(n int) (int, error) {
	r.batch = r.batch[:0]
	for i, slot := range r.free[:n] {
		wr := &r.WRs[slot]
		seq := r.posted + 1 + uint64(i)
		wr.WRID = recvBit | uint64(r.num)<<ringShift | (seq&seqMask)<<seqShift | uint64(slot)
		r.batch = append(r.batch, *wr)
	}
	done, err := r.queue.PostRecv(r.batch)
	for _, slot := range r.free[:done] {
		r.posted++
		r.seqs[slot] = r.posted
	}
	r.free = append(r.free[:0], r.free[done:]...)
	if err != nil {
		return done, fmt.Errorf("post receive %d: %w", r.posted+1, err)
	}
	return done, nil
}

// Complete frees and returns the slot of the completed receive with a work request ID. It returns
// an error if that receive does not exist (slot -1), is not posted or, unless the queue is Shared,
// completed before one posted earlier. The data is valid until the slot is posted again.
func (r *RecvRing) Complete(id uint64) (slot int, err error) {
	slot = int(id & (1<<seqShift - 1))
	if slot >= len(r.seqs) {
		return -1, fmt.Errorf("a completion names receive slot %d, which does not exist", slot)
	}
	seq := r.seqs[slot]
	if seq == 0 || seq&seqMask != (id>>seqShift)&seqMask {
		return slot, fmt.Errorf("receive %d completed, which was not posted or had completed before", slot)
	}
	r.seqs[slot] = 0
	r.free = append(r.free, slot)
	// A wrong order is reported once, when the later receive completes.
	next := r.lastCompleted + 1
	if seq < next {
		return slot, nil
	}
	r.lastCompleted = seq
	if seq > next && !r.Shared {
		err = fmt.Errorf("receive %d completed before receive %d, which was posted before it", slot, slices.Index(r.seqs, next))
	}
	return slot, err
}
