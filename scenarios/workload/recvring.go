package workload

import (
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// recvRing is the receives of a queue pair or an SRQ, all of one size.
type recvRing struct {
	*traffic.RecvRing
	*env
	owner    int       // connection; noConn if several share it
	endpoint *endpoint // rd only
	mem      *memory
	slotLen  int  // 0 if only notices are received
	closed   bool // its queue accepts no more receives

	// A slow receiver posts at most maxPost receives at a time, from nextAt on.
	maxPost int
	nextAt  time.Duration
}

// noConn is the index of no connection.
const noConn = -1

func newRing(e *env, r *traffic.RecvRing, mem *memory, slotLen int) *recvRing {
	return &recvRing{RecvRing: r, env: e, owner: noConn, mem: mem, slotLen: slotLen}
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
	if cfg := &r.cfg; cfg.Pause > 0 {
		r.maxPost = max(1, min(cfg.Depth/4, len(r.WRs)))
	}
	_, err := r.refill()
	return err
}

// refill posts free slots, and reports whether there were any.
func (r *recvRing) refill() (bool, error) {
	if r.closed || len(r.Free()) == 0 || r.cfg.Pause > 0 && (r.Outstanding() > 0 || !r.due(r.nextAt)) {
		return false, nil
	}
	posted, err := r.Post(min(len(r.Free()), r.maxPost))
	return posted > 0, err
}

// complete returns the slot of a completed receive; negative if there is none.
func (r *recvRing) complete(id uint64) (slot int, err error) {
	slot, err = r.Complete(id)
	if pause := r.cfg.Pause; pause > 0 && r.Outstanding() == 0 {
		r.nextAt = r.now + pause
	}
	return slot, err
}

// bytes returns the data of a slot.
func (r *recvRing) bytes(slot, n int) []byte {
	at := slot * r.slotLen
	return r.mem.buf[at : at+min(n, r.slotLen)]
}
