package traffic

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Work request IDs say what completes. A receive's has the top bit, its ring,
// its slot and a sequence number; a send's has its lane and the request.
const (
	recvID     = 1 << 63
	ringShift  = 48
	slotShift  = 32
	laneShift  = 40
	windowsBit = 1 << 39 // the bind of a window before the traffic starts
	markerBit  = 1 << 38 // the marker behind the requests of a failed lane
)

// receiver is what receives are posted to: a QP or an SRQ.
type receiver interface {
	PostRecv(wrs []verbs.RecvWR) (posted int, err error)
}

// ring is a receive queue and the memory of its receives.
type ring struct {
	end *End
	ringConfig
	num int
	to  interface {
		PostRecv([]verbs.RecvWR) (int, error)
	}
	srq  verbs.SRQ // nil where the queue is a QP's own
	mr   verbs.MR
	buf  []byte
	size int // of a slot

	slots  []slot
	free   []int
	posted uint32 // receives posted so far
	done   uint32 // and completed
	// limit is how many receives are posted in all; 0 for as many as it takes.
	limit uint32
	// sizes are those of the messages to come, where they are known.
	sizes   []int
	stopped bool
	beats   metronome
	wrs     []verbs.RecvWR
	sges    []verbs.SGE
	scratch []byte
	closed  bool
}

type ringConfig struct {
	lane   *lane // whose it is; nil if several lanes share it
	depth  int
	room   int // for the longest message
	most   int // pieces
	rhythm Pacing
}

// slot is the memory of one receive.
type slot struct {
	index  int
	seq    uint32
	busy   bool
	pieces []piece
}

func (e *End) newRing(to receiver, cfg ringConfig) (*ring, error) {
	r := &ring{end: e, ringConfig: cfg, num: len(e.rings), to: to, size: slotLen(cfg.room, cfg.most)}
	r.buf = make([]byte, max(1, r.depth*r.size))
	r.slots = make([]slot, r.depth)
	for i := range r.slots {
		r.slots[i].index = i
		r.free = append(r.free, r.depth-1-i)
	}
	r.scratch = make([]byte, cfg.room)
	r.beats = metronome{rhythm: cfg.rhythm, rng: source(derive(derive(e.w.Seed, keyRhythm+uint64(e.side)<<8), uint64(r.num)))}
	mr, err := e.pd.RegMR(verbs.MRInit{Buf: r.buf, Access: verbs.AccessLocalWrite})
	if err != nil {
		return nil, err
	}
	r.mr = mr
	e.rings = append(e.rings, r)
	return r, nil
}

// expect tells the ring which messages will come: no more receives than for
// these and spare ones are posted, and tight ones fit.
func (r *ring) expect(sizes []int, spare int, tight bool) {
	r.limit = uint32(len(sizes) + spare)
	r.stopped = r.limit == 0
	if tight {
		r.sizes = sizes
	}
}

// space is how many receives may be posted.
func (r *ring) space() int {
	if r.stopped {
		return 0
	}
	if r.limit > 0 {
		return min(len(r.free), int(r.limit-r.posted))
	}
	return len(r.free)
}

// post posts receives if it is time to.
func (r *ring) post(now time.Duration) (bool, error) { return r.postUpTo(r.beats.beat(now, r.space())) }

func (r *ring) postUpTo(n int) (bool, error) {
	if n == 0 {
		return false, nil
	}
	r.wrs, r.sges = r.wrs[:0], r.sges[:0]
	for range n {
		r.wrs = append(r.wrs, r.prepare())
	}
	if got, err := r.to.PostRecv(r.wrs); err != nil {
		return false, fmt.Errorf("receive %d: %w", int(r.posted)-n+got, err)
	}
	return true, nil
}

// prepare takes a slot and makes its work request.
func (r *ring) prepare() verbs.RecvWR {
	last := len(r.free) - 1
	s := &r.slots[r.free[last]]
	r.free = r.free[:last]
	room := r.room
	if int(r.posted) < len(r.sizes) {
		room = r.sizes[r.posted]
	}
	s.seq, s.busy = r.posted, true
	s.pieces = cut(s.pieces[:0], derive(derive(r.end.w.Seed, keyPieces), uint64(r.num)<<32|uint64(s.seq)), room, r.most)
	r.posted++
	poisonSlot(r.memory(s))
	from := len(r.sges)
	r.sges = sgl(r.sges, r.mr, s.index*r.size, s.pieces)
	return verbs.RecvWR{
		WRID: recvID | uint64(r.num)<<ringShift | uint64(s.index)<<slotShift | uint64(s.seq),
		SGL:  r.sges[from:len(r.sges):len(r.sges)],
	}
}

func (r *ring) memory(s *slot) []byte { return r.buf[s.index*r.size : (s.index+1)*r.size] }

// take finds the receive that completed and frees its slot for later. The slot
// keeps its contents until the next post.
func (r *ring) take(wc *verbs.WC) (*slot, error) {
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

// message returns the first n bytes of a completed receive and makes sure that
// nothing else in its slot was touched. It is valid until the next call. A
// receive that is reused may hold parts of a message that was dropped.
func (r *ring) message(s *slot, n int, reused bool) ([]byte, error) {
	mem := r.memory(s)
	if n > r.room {
		return nil, fmt.Errorf("%d bytes in a receive for %d", n, r.room)
	}
	touched := n
	if reused {
		touched = r.room
	}
	if !untouched(mem, s.pieces, touched) {
		return nil, fmt.Errorf("bytes beside the %d of the message were written", n)
	}
	gather(r.scratch[:n], mem, s.pieces)
	return r.scratch[:n], nil
}

func (r *ring) outstanding() int { return int(r.posted - r.done) }

func (r *ring) close() error {
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
