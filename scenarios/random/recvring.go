package random

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Work request IDs: a receive has the top bit, its ring, its slot and a sequence number; a
// send has its lane and the number of the request.
const (
	recvID     = 1 << 63
	ringShift  = 48
	slotShift  = 32
	laneShift  = 40
	windowsBit = 1 << 39 // bind of a window before the traffic starts
	markerBit  = 1 << 38 // drain marker of a failed lane
)

// receiveQueue is a queue pair or an SRQ.
type receiveQueue interface {
	PostRecv(wrs []verbs.RecvWR) (posted int, err error)
}

// recvRing is a receive queue and the memory of its receives.
type recvRing struct {
	end *End
	ringConfig
	num   int
	queue interface {
		PostRecv([]verbs.RecvWR) (int, error)
	}
	srq  verbs.SRQ // nil if the queue is that of a queue pair
	mr   verbs.MR
	buf  []byte
	size int // of a slot

	slots  []slot
	free   []int
	posted uint32 // receives
	done   uint32 // receives completed
	// limit is the number of receives to post in total; 0: no limit.
	limit uint32
	// sizes are the sizes of the expected messages, if known.
	sizes   []int
	stopped bool
	pacer   pacer
	wrs     []verbs.RecvWR
	sges    []verbs.SGE
	scratch []byte
	closed  bool
}

type ringConfig struct {
	lane      *lane // nil if shared
	depth     int
	maxLen    int // of a message
	maxPieces int
	pacing    Pacing
}

// slot is the memory of one receive.
type slot struct {
	index  int
	seq    uint32
	busy   bool
	pieces []piece
}

func (e *End) newRing(to receiveQueue, cfg ringConfig) (*recvRing, error) {
	r := &recvRing{end: e, ringConfig: cfg, num: len(e.rings), queue: to, size: slotLen(cfg.maxLen, cfg.maxPieces)}
	r.buf = make([]byte, max(1, r.depth*r.size))
	r.slots = make([]slot, r.depth)
	for i := range r.slots {
		r.slots[i].index = i
		r.free = append(r.free, r.depth-1-i)
	}
	r.scratch = make([]byte, cfg.maxLen)
	r.pacer = pacer{pacing: cfg.pacing, rng: newRand(traffic.Derive(e.w.Seed, keyPacing+uint64(e.side)<<8, uint64(r.num)))}
	mr, err := e.pd.RegMR(verbs.MRInit{Buf: r.buf, Access: verbs.AccessLocalWrite})
	if err != nil {
		return nil, err
	}
	r.mr = mr
	e.rings = append(e.rings, r)
	return r, nil
}

// expect sets the sizes of the expected messages. The ring posts receives for these and
// spare ones; tight receives fit exactly.
func (r *recvRing) expect(sizes []int, spare int, tight bool) {
	r.limit = uint32(len(sizes) + spare)
	r.stopped = r.limit == 0
	if tight {
		r.sizes = sizes
	}
}

// space is how many receives may be posted.
func (r *recvRing) space() int {
	if r.stopped {
		return 0
	}
	if r.limit > 0 {
		return min(len(r.free), int(r.limit-r.posted))
	}
	return len(r.free)
}

// post posts receives if the pacing permits.
func (r *recvRing) post(now time.Duration) (bool, error) {
	return r.postUpTo(r.pacer.allowed(now, r.space()))
}

func (r *recvRing) postUpTo(n int) (bool, error) {
	if n == 0 {
		return false, nil
	}
	r.wrs, r.sges = r.wrs[:0], r.sges[:0]
	for range n {
		r.wrs = append(r.wrs, r.prepare())
	}
	if got, err := r.queue.PostRecv(r.wrs); err != nil {
		return false, fmt.Errorf("receive %d: %w", int(r.posted)-n+got, err)
	}
	return true, nil
}

// prepare takes a free slot and returns its work request.
func (r *recvRing) prepare() verbs.RecvWR {
	last := len(r.free) - 1
	s := &r.slots[r.free[last]]
	r.free = r.free[:last]
	room := r.maxLen
	if int(r.posted) < len(r.sizes) {
		room = r.sizes[r.posted]
	}
	s.seq, s.busy = r.posted, true
	s.pieces = split(s.pieces[:0], traffic.Derive(r.end.w.Seed, keyPieces, uint64(r.num)<<32|uint64(s.seq)), room, r.maxPieces)
	r.posted++
	poisonSlot(r.memory(s))
	from := len(r.sges)
	r.sges = sgl(r.sges, r.mr, s.index*r.size, s.pieces)
	return verbs.RecvWR{
		WRID: recvID | uint64(r.num)<<ringShift | uint64(s.index)<<slotShift | uint64(s.seq),
		SGL:  r.sges[from:len(r.sges):len(r.sges)],
	}
}

func (r *recvRing) memory(s *slot) []byte { return r.buf[s.index*r.size : (s.index+1)*r.size] }

// complete returns the slot of a completed receive. Its contents stay valid until the next
// post.
func (r *recvRing) complete(wc *verbs.WC) (*slot, error) {
	index, seq := int(wc.WRID>>slotShift&0xffff), uint32(wc.WRID)
	if index >= len(r.slots) || !r.slots[index].busy || r.slots[index].seq != seq {
		return nil, fmt.Errorf("completion of receive %d, which is not posted", seq)
	}
	if r.lane != nil && seq != r.done {
		return nil, fmt.Errorf("completion of receive %d before that of %d", seq, r.done)
	}
	s := &r.slots[index]
	s.busy = false
	r.done++
	r.free = append(r.free, index)
	return s, nil
}

// message returns the first n bytes of a completed receive, and checks that the rest of the
// slot is unchanged. They are valid until the next call. A reused receive may contain parts
// of a dropped message.
func (r *recvRing) message(s *slot, n int, reused bool) ([]byte, error) {
	mem := r.memory(s)
	if n > r.maxLen {
		return nil, fmt.Errorf("%d bytes in a receive for %d", n, r.maxLen)
	}
	touched := n
	if reused {
		touched = r.maxLen
	}
	if !untouched(mem, s.pieces, touched) {
		return nil, fmt.Errorf("bytes beside the %d of the message were written", n)
	}
	gather(r.scratch[:n], mem, s.pieces)
	return r.scratch[:n], nil
}

func (r *recvRing) outstanding() int { return int(r.posted - r.done) }

func (r *recvRing) close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if r.srq != nil {
		if err := r.srq.Close(); err != nil {
			return err
		}
	}
	return r.mr.Close()
}
