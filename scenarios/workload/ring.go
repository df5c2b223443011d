package workload

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// ring is receives of one size, posted again and again: a queue pair's own, or
// those of a shared receive queue.
type ring struct {
	n      *node
	num    int       // in work request IDs
	owner  *conn     // nil where several connections receive from it
	via    *endpoint // rd: whose receives they are
	mem    *memory
	room   int // bytes of a slot; 0 where only notices are received
	shared bool
	closed bool // its queue takes none any more

	queue   receiveQueue
	wrs     []verbs.RecvWR // by slot
	batch   []verbs.RecvWR // what is posted at once
	posted  []bool         // by slot
	late    []bool         // by slot: one posted after it has completed
	order   []int          // slots in the order of posting, oldest at head, but for the late ones
	head    int
	queued  int   // in order
	waiting int   // slots posted
	free    []int // slots not posted

	// A slow receiver posts at most few at a time, and pause apart.
	few    int
	nextAt time.Duration
}

// Work request IDs: receives have the top bit, the ring and the slot; requests
// the connection, its epoch and a number.
const (
	recvBit   = 1 << 63
	ringShift = 32
	connShift = 48
	epochMask = 1<<16 - 1
	seqMask   = 1<<32 - 1
)

func (n *node) newRing(mem *memory, slots, room int) *ring {
	r := &ring{
		n: n, num: len(n.rings), mem: mem, room: room,
		wrs: make([]verbs.RecvWR, slots), batch: make([]verbs.RecvWR, 0, slots),
		posted: make([]bool, slots), late: make([]bool, slots), order: make([]int, slots), free: make([]int, 0, slots),
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

// receiveQueue is a queue pair's own, or a shared one.
type receiveQueue interface {
	PostRecv([]verbs.RecvWR) (int, error)
}

// attach gives the ring a queue to post to and posts all slots, or as many as a
// slow receiver does.
func (r *ring) attach(on *rail, queue receiveQueue) error {
	r.queue = queue
	r.head, r.queued, r.waiting = 0, 0, 0
	r.free = r.free[:0]
	for i := range r.wrs {
		r.posted[i], r.late[i] = false, false
		r.free = append(r.free, i)
		if r.room > 0 {
			r.wrs[i].SGL[0] = r.mem.sge(i*r.room, r.room)
		}
	}
	r.few, r.nextAt = len(r.wrs), 0
	if on.n.cfg.Pause > 0 {
		r.few = max(1, min(on.n.cfg.Depth/4, len(r.wrs)))
	}
	_, err := r.refill()
	return err
}

// refill posts the slots that are free. It reports whether it did.
func (r *ring) refill() (bool, error) {
	if r.closed || len(r.free) == 0 || r.n.cfg.Pause > 0 && (r.waiting > 0 || !r.n.due(r.nextAt)) {
		return false, nil
	}
	k := min(len(r.free), r.few)
	r.batch = r.batch[:0]
	for _, slot := range r.free[:k] {
		r.batch = append(r.batch, r.wrs[slot])
	}
	done, err := r.queue.PostRecv(r.batch)
	for _, slot := range r.free[:done] {
		r.posted[slot] = true
		r.waiting++
		if !r.shared {
			r.order[(r.head+r.queued)%len(r.order)] = slot
			r.queued++
		}
	}
	r.free = append(r.free[:0], r.free[done:]...)
	if err != nil {
		return done > 0, fmt.Errorf("posting a receive: %w", err)
	}
	return done > 0, nil
}

// take notes that a slot has completed; what is wrong about it is returned. The
// slot's bytes are good until it is posted again.
func (r *ring) take(slot int) (wrong string) {
	if slot >= len(r.wrs) || !r.posted[slot] {
		return fmt.Sprintf("receive %d completed, which was not posted or had completed", slot)
	}
	if !r.shared && !r.late[slot] {
		wrong = r.pass(slot)
	}
	r.late[slot] = false
	r.posted[slot] = false
	r.waiting--
	r.free = append(r.free, slot)
	if pause := r.n.cfg.Pause; pause > 0 && r.waiting == 0 {
		r.nextAt = r.n.now + pause
	}
	return wrong
}

// pass takes a slot out of the order. What was posted before it should have
// completed before it: that is said once, and not again when those do.
func (r *ring) pass(slot int) (wrong string) {
	for {
		first := r.order[r.head]
		r.head = (r.head + 1) % len(r.order)
		r.queued--
		if first == slot {
			return wrong
		}
		if r.late[first] = true; wrong == "" {
			wrong = fmt.Sprintf("receive %d completed before receive %d, which was posted before it", slot, first)
		}
	}
}

// bytes is what a slot holds.
func (r *ring) bytes(slot, n int) []byte {
	at := slot * r.room
	return r.mem.buf[at : at+min(n, r.room)]
}
