package workload

import (
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// recvRing is the receives of a queue pair or an SRQ, all of one size.
type recvRing struct {
	*traffic.RecvRing
	n        *node
	owner    *conn     // nil if several connections share it
	endpoint *endpoint // rd only
	mem      *memory
	slotLen  int  // 0 if only notices are received
	closed   bool // its queue accepts no more receives

	// A slow receiver posts at most maxPost receives at a time, from nextAt on.
	maxPost int
	nextAt  time.Duration
}

func (n *node) newRing(mem *memory, slots, room int, shared bool) *recvRing {
	r := &recvRing{RecvRing: traffic.NewRecvRing(len(n.rings), slots, shared), n: n, mem: mem, slotLen: room}
	n.rings = append(n.rings, r)
	return r
}

// attach sets the queue and posts all slots, or as many as a slow receiver posts.
func (r *recvRing) attach(queue traffic.RecvQueue) error {
	r.Attach(queue)
	if r.slotLen > 0 {
		sges := make([]verbs.SGE, len(r.WRs))
		for i := range r.WRs {
			sges[i] = r.mem.sge(i*r.slotLen, r.slotLen)
			r.WRs[i].SGL = sges[i : i+1]
		}
	}
	r.maxPost, r.nextAt = len(r.WRs), 0
	if cfg := &r.n.cfg; cfg.Pause > 0 {
		r.maxPost = max(1, min(cfg.Depth/4, len(r.WRs)))
	}
	_, err := r.refill()
	return err
}

// refill posts free slots, and reports whether there were any.
func (r *recvRing) refill() (bool, error) {
	if r.closed || len(r.Free()) == 0 || r.n.cfg.Pause > 0 && (r.Outstanding() > 0 || !r.n.due(r.nextAt)) {
		return false, nil
	}
	posted, err := r.Post(min(len(r.Free()), r.maxPost))
	return posted > 0, err
}

// complete returns the slot of a completed receive; negative if there is none.
func (r *recvRing) complete(id uint64) (slot int, err error) {
	slot, err = r.Complete(id)
	if pause := r.n.cfg.Pause; pause > 0 && r.Outstanding() == 0 {
		r.nextAt = r.n.now + pause
	}
	return slot, err
}

// bytes returns the data of a slot.
func (r *recvRing) bytes(slot, n int) []byte {
	at := slot * r.slotLen
	return r.mem.buf[at : at+min(n, r.slotLen)]
}
