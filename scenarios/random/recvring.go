package random

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Work request IDs of sends have their connection and the number of the request.
const (
	connShift  = 40
	windowsBit = 1 << 39 // bind of a window before the traffic starts
	markerBit  = 1 << 38 // drain marker of a failed connection
)

const unlimited = -1

// recvRing is a receive queue and the memory of its receives.
type recvRing struct {
	*traffic.RecvRing
	end *End
	ringConfig
	num  int
	mr   verbs.MR
	buf  []byte
	size int // of a slot

	limit int // receives to post in total, or unlimited
	// sizes are the sizes of the expected messages, if known.
	sizes  []int
	pieces [][]piece // by slot
	pacer
	sges    []verbs.SGE
	scratch []byte
	closed  bool
}

type ringConfig struct {
	conn      *conn     // nil if shared
	srq       verbs.SRQ // nil if the queue is that of a queue pair
	depth     int
	maxLen    int // of a message
	maxPieces int
	pace      Pacing
}

// newRing returns a ring of receive buffers for a queue, and registers their memory. If cfg.conn is
// nil, all connections share the ring. It posts no receives.
func (e *End) newRing(queue traffic.RecvQueue, cfg ringConfig) (r *recvRing, err error) {
	num, shared := len(e.rings), cfg.conn == nil
	const sideShift = 8 // above the keys: each side has its own random numbers
	r = &recvRing{
		RecvRing: traffic.NewRecvRing(num, cfg.depth, shared), end: e, ringConfig: cfg, num: num, limit: unlimited,
		size: slotLen(cfg.maxLen, cfg.maxPieces), pieces: make([][]piece, cfg.depth), scratch: make([]byte, cfg.maxLen),
		pacer: pacer{pacing: cfg.pace, rng: newRand(traffic.Derive(e.w.Seed, keyPacing|uint64(e.side)<<sideShift, uint64(num)))},
	}
	r.Attach(queue)
	r.buf = make([]byte, max(1, r.depth*r.size)) // a region cannot be empty
	r.mr, err = e.PD.RegMR(verbs.MRInit{Buf: r.buf, Access: verbs.AccessLocalWrite})
	e.rings = append(e.rings, r)
	return r, err
}

// expect limits the number of receives that the ring posts to len(sizes) + spare. sizes are those
// of the expected messages. If tight is set, each receive has exactly the size of its message.
func (r *recvRing) expect(sizes []int, spare int, tight bool) {
	r.limit = len(sizes) + spare
	if tight {
		r.sizes = sizes
	}
}

// space returns how many receives may be posted now: one for each free slot, but in total no more
// than r.limit, which expect sets.
func (r *recvRing) space() int {
	if r.limit == unlimited {
		return len(r.Free())
	}
	return min(len(r.Free()), r.limit-r.Posted())
}

// post posts receives if the pacing permits, and reports whether it posted any.
func (r *recvRing) post(now time.Duration) (bool, error) {
	return r.postNext(r.allowed(now, r.space()))
}

// postNext posts the next n receives, and reports whether it posted any.
func (r *recvRing) postNext(n int) (bool, error) {
	if n == 0 {
		return false, nil
	}
	r.sges = r.sges[:0]
	for i, slot := range r.Free()[:n] {
		r.prepare(slot, r.Posted()+i)
	}
	_, err := r.Post(n)
	return err == nil, err
}

// prepare sets the work request of a slot for receive seq, with random pieces as SGEs. It fills the
// slot with poison, so that r.message detects writes outside of the pieces.
func (r *recvRing) prepare(slot, seq int) {
	room := r.maxLen
	if seq < len(r.sizes) {
		room = r.sizes[seq]
	}
	r.pieces[slot] = split(r.pieces[slot][:0], traffic.Derive(r.end.w.Seed, keyPieces, uint64(r.num)<<32|uint64(seq)), room, r.maxPieces)
	poisonSlot(r.memory(slot))
	from := len(r.sges)
	r.sges = sgl(r.sges, r.mr, slot*r.size, r.pieces[slot])
	r.WRs[slot].SGL = r.sges[from:len(r.sges):len(r.sges)]
}

func (r *recvRing) memory(slot int) []byte { return r.buf[slot*r.size : (slot+1)*r.size] }

// message returns the first n bytes of a completed receive, valid until the next call. It checks
// that the rest of the slot is unchanged; a reused receive may contain parts of a dropped message.
func (r *recvRing) message(slot, n int, reused bool) ([]byte, error) {
	mem := r.memory(slot)
	if n > r.maxLen {
		return nil, fmt.Errorf("%d bytes in a receive for %d", n, r.maxLen)
	}
	touched := n
	if reused {
		touched = r.maxLen
	}
	if !untouched(mem, r.pieces[slot], touched) {
		return nil, fmt.Errorf("bytes beside the %d of the message were written", n)
	}
	gather(r.scratch[:n], mem, r.pieces[slot])
	return r.scratch[:n], nil
}

// close closes the SRQ, if the ring has one, and the memory. Further calls do nothing.
func (r *recvRing) close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	return traffic.Close(r.srq, r.mr)
}
