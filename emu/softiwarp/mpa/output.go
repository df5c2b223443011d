package mpa

import "github.com/fabrictest/fabrictest/emu/internal/queue"

// output is what waits to be written: vectors, some of them borrowed and some in
// a ring of octets of its own, and where in them each FPDU ends. All of it is
// first in, first out, and kept for use again.
type output struct {
	vectors queue.FIFO[[]byte]
	frames  queue.FIFO[frame]
	align   bool // no vector holds octets of two frames

	queued uint64 // octets ever queued
	sent   uint64 // and taken by TCP
	fpdus  int    // how many of frames are FPDUs

	// ring holds octets from tail to head, around its end if head < tail. When it
	// is too small another one takes its place, and what is in the old one stays
	// there until it was sent.
	ring       []byte
	head, tail int
	live       int // frames in this ring
	generation int

	open int // where the last vector ends in the ring, if it does and may grow, else -1
}

// frame is a start-up frame or an FPDU.
type frame struct {
	end        uint64 // as output.queued counts
	ring       int    // where its octets in the ring end
	generation int
	fpdu       bool
}

// firstRing is enough for the FPDUs of a connection that has little to say.
const firstRing = 512

// begin makes room for a frame with n octets of its own.
func (o *output) begin(n int) {
	if o.live == 0 {
		o.head, o.tail, o.open = 0, 0, -1
	}
	switch {
	case o.head >= o.tail && len(o.ring)-o.head >= n: // between head and end
	case o.head >= o.tail && n < o.tail:
		o.head = 0 // before tail; head == tail would look empty
	case o.head < o.tail && o.tail-o.head > n:
	default:
		o.ring = make([]byte, max(firstRing, 2*len(o.ring), 2*n))
		o.head, o.tail, o.live, o.open = 0, 0, 0, -1
		o.generation++
	}
	if o.align {
		o.open = -1
	}
}

// own returns n octets of the ring, to be filled, and puts them behind what is
// queued.
func (o *output) own(n int) []byte {
	b := o.ring[o.head : o.head+n]
	if o.open == o.head {
		last := o.vectors.Last()
		*last = (*last)[:len(*last)+n]
	} else {
		o.vectors.Push(o.ring[o.head : o.head+n])
	}
	o.head += n
	o.open = o.head
	o.queued += uint64(n)
	return b
}

// borrow puts b behind what is queued.
func (o *output) borrow(b []byte) {
	if len(b) == 0 {
		return
	}
	o.vectors.Push(b)
	o.open = -1
	o.queued += uint64(len(b))
}

// end ends a frame.
func (o *output) end(fpdu bool) {
	o.frames.Push(frame{end: o.queued, ring: o.head, generation: o.generation, fpdu: fpdu})
	o.live++
	if fpdu {
		o.fpdus++
	}
}

// take lets go of n octets that TCP has, and returns how many FPDUs ended in
// them.
func (o *output) take(n int) (fpdus int) {
	o.sent += uint64(n)
	for n > 0 {
		first := o.vectors.First()
		if n < len(*first) {
			*first = (*first)[n:]
			break
		}
		n -= len(*first)
		o.vectors.Pop()
	}
	for o.frames.Len() > 0 && o.frames.First().end <= o.sent {
		f, _ := o.frames.Pop()
		if f.generation == o.generation {
			o.tail = f.ring
			o.live--
		}
		if f.fpdu {
			fpdus++
		}
	}
	o.fpdus -= fpdus
	return fpdus
}

// drop forgets all that was queued.
func (o *output) drop() {
	o.vectors.Release()
	o.frames.Release()
	o.ring, o.head, o.tail, o.live, o.open = nil, 0, 0, 0, -1
	o.fpdus = 0
	o.sent = o.queued
}

func (o *output) empty() bool { return o.vectors.Len() == 0 }

// octets is how much is queued.
func (o *output) octets() int { return int(o.queued - o.sent) }
