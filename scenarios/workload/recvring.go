package workload

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// recvRing is a set of receives of one size that are posted again and again, to a queue
// pair or an SRQ.
type recvRing struct {
	n        *node
	num      int       // in work request IDs
	owner    *conn     // nil if several connections share it
	endpoint *endpoint // rd only
	mem      *memory
	slotLen  int // 0 if only notices are received
	shared   bool
	closed   bool // its queue accepts no more receives

	queue       receiveQueue
	wrs         []verbs.RecvWR // by slot
	batch       []verbs.RecvWR // posted in one call
	posted      []bool         // by slot
	overtaken   []bool         // by slot: a receive posted later has completed
	order       []int          // posted slots, oldest at head, without overtaken ones
	head        int
	queued      int // length of order
	postedCount int
	free        []int // slots not posted

	// A slow receiver posts at most maxPost receives at a time, from nextAt on.
	maxPost int
	nextAt  time.Duration
}

// Work request IDs: receives have the top bit, ring and slot; requests have connection,
// epoch and number.
const (
	recvBit   = 1 << 63
	ringShift = 32
	connShift = 48
	epochMask = 1<<16 - 1
	seqMask   = 1<<32 - 1
)

func (n *node) newRing(mem *memory, slots, room int) *recvRing {
	r := &recvRing{
		n: n, num: len(n.rings), mem: mem, slotLen: room,
		wrs: make([]verbs.RecvWR, slots), batch: make([]verbs.RecvWR, 0, slots),
		posted: make([]bool, slots), overtaken: make([]bool, slots), order: make([]int, slots), free: make([]int, 0, slots),
	}
	sges := make([]verbs.SGE, slots)
	for i := range r.wrs {
		r.wrs[i].WRID = recvBit | uint64(r.num)<<ringShift | uint64(i)
		if room > 0 {
			r.wrs[i].SGL = sges[i : i+1]
		}
	}
	n.rings = append(n.rings, r)
	return r
}

// receiveQueue is a queue pair or an SRQ.
type receiveQueue interface {
	PostRecv([]verbs.RecvWR) (int, error)
}

// attach sets the queue and posts all slots, or as many as a slow receiver posts.
func (r *recvRing) attach(on *rail, queue receiveQueue) error {
	r.queue = queue
	r.head, r.queued, r.postedCount = 0, 0, 0
	r.free = r.free[:0]
	for i := range r.wrs {
		r.posted[i], r.overtaken[i] = false, false
		r.free = append(r.free, i)
		if r.slotLen > 0 {
			r.wrs[i].SGL[0] = r.mem.sge(i*r.slotLen, r.slotLen)
		}
	}
	r.maxPost, r.nextAt = len(r.wrs), 0
	if on.n.cfg.Pause > 0 {
		r.maxPost = max(1, min(on.n.cfg.Depth/4, len(r.wrs)))
	}
	_, err := r.refill()
	return err
}

// refill posts free slots, and reports whether there were any.
func (r *recvRing) refill() (bool, error) {
	if r.closed || len(r.free) == 0 || r.n.cfg.Pause > 0 && (r.postedCount > 0 || !r.n.due(r.nextAt)) {
		return false, nil
	}
	k := min(len(r.free), r.maxPost)
	r.batch = r.batch[:0]
	for _, slot := range r.free[:k] {
		r.batch = append(r.batch, r.wrs[slot])
	}
	done, err := r.queue.PostRecv(r.batch)
	for _, slot := range r.free[:done] {
		r.posted[slot] = true
		r.postedCount++
		if !r.shared {
			r.order[(r.head+r.queued)%len(r.order)] = slot
			r.queued++
		}
	}
	r.free = append(r.free[:0], r.free[done:]...)
	if err != nil {
		return done > 0, fmt.Errorf("post a receive: %w", err)
	}
	return done > 0, nil
}

// complete notes that a slot has completed, and returns a description of a violation, if
// any. The data is valid until the slot is posted again.
func (r *recvRing) complete(slot int) (wrong string) {
	if slot >= len(r.wrs) || !r.posted[slot] {
		return fmt.Sprintf("receive %d completed, which was not posted or had completed before", slot)
	}
	if !r.shared && !r.overtaken[slot] {
		wrong = r.removeFromOrder(slot)
	}
	r.overtaken[slot] = false
	r.posted[slot] = false
	r.postedCount--
	r.free = append(r.free, slot)
	if pause := r.n.cfg.Pause; pause > 0 && r.postedCount == 0 {
		r.nextAt = r.n.now + pause
	}
	return wrong
}

// removeFromOrder removes a slot from the posting order. Earlier slots should have
// completed before it; that is reported once.
func (r *recvRing) removeFromOrder(slot int) (wrong string) {
	for {
		first := r.order[r.head]
		r.head = (r.head + 1) % len(r.order)
		r.queued--
		if first == slot {
			return wrong
		}
		if r.overtaken[first] = true; wrong == "" {
			wrong = fmt.Sprintf("receive %d completed before receive %d, which was posted before it", slot, first)
		}
	}
}

// bytes returns the data of a slot.
func (r *recvRing) bytes(slot, n int) []byte {
	at := slot * r.slotLen
	return r.mem.buf[at : at+min(n, r.slotLen)]
}
