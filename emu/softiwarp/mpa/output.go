package mpa

import "github.com/fabrictest/fabrictest/emu/internal/nic"

// output is the queue of octets to write: buffers that are borrowed or in a ring buffer, and
// the ends of frames.
type output struct {
	vectors nic.FIFO[[]byte]
	frames  nic.FIFO[frame]
	align   bool // keep frames in separate vectors

	queued uint64 // octets ever queued
	sent   uint64 // octets accepted by TCP
	fpdus  int    // how many of frames are FPDUs

	// ring holds octets from tail to head and wraps around. If it is too small, a larger one
	// replaces it; frames in the old one remain valid until they are sent.
	ring       []byte
	head, tail int
	ringFrames int // frames in this ring
	generation int

	extendAt int // ring offset at which the last vector can be extended, or noVector
}

const noVector = -1 // the next octets start a new vector

// frame is a Request, a Reply or an FPDU.
type frame struct {
	end        uint64 // value of output.queued at its end
	ring       int    // ring offset of its end
	generation int
	fpdu       bool
}

// firstRing is the initial size of the ring.
const firstRing = 512

// reserve makes sure that the ring has n contiguous free octets for a frame from head on: it wraps
// head to the start, or replaces the ring by a larger one. Frames in the old ring, of an earlier
// generation, stay queued.
func (o *output) reserve(n int) {
	if o.ringFrames == 0 {
		o.head, o.tail, o.extendAt = 0, 0, noVector
	}
	switch {
	case o.head >= o.tail && len(o.ring)-o.head >= n: // n octets fit between head and the ring's end
	case o.head >= o.tail && n < o.tail:
		o.head = 0 // n octets fit before tail; n == o.tail does not: head == tail would look empty
	case o.head < o.tail && o.tail-o.head > n: // n octets fit between head and tail
	default:
		o.ring = make([]byte, max(firstRing, 2*len(o.ring), 2*n))
		o.head, o.tail, o.ringFrames, o.extendAt = 0, 0, 0, noVector
		o.generation++
	}
	if o.align { // frames do not share a vector
		o.extendAt = noVector
	}
}

// alloc queues the next n octets of the ring and returns them for the caller to fill. If they
// follow those of the last vector (o.extendAt), it extends that vector.
func (o *output) alloc(n int) []byte {
	b := o.ring[o.head : o.head+n]
	if o.extendAt == o.head {
		last := o.vectors.Last()
		*last = (*last)[:len(*last)+n]
	} else {
		o.vectors.Push(o.ring[o.head : o.head+n])
	}
	o.head += n
	o.extendAt = o.head
	o.queued += uint64(n)
	return b
}

// borrow queues b without a copy.
func (o *output) borrow(b []byte) {
	if len(b) == 0 {
		return
	}
	o.vectors.Push(b)
	o.extendAt = noVector
	o.queued += uint64(len(b))
}

// isFPDU is the argument of end for an FPDU.
const isFPDU = true

// end marks the end of a frame, which is an FPDU or not (a Request or Reply).
func (o *output) end(fpdu bool) {
	o.frames.Push(frame{end: o.queued, ring: o.head, generation: o.generation, fpdu: fpdu})
	o.ringFrames++
	if fpdu {
		o.fpdus++
	}
}

// release removes n octets that TCP has accepted, and returns how many FPDUs ended in them.
func (o *output) release(n int) (fpdus int) {
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
		if f.generation == o.generation { // else the frame was in a ring that reserve has replaced
			o.tail = f.ring
			o.ringFrames--
		}
		if f.fpdu {
			fpdus++
		}
	}
	o.fpdus -= fpdus
	return fpdus
}

// drop discards all queued output.
func (o *output) drop() {
	o.vectors.Release()
	o.frames.Release()
	o.ring, o.head, o.tail, o.ringFrames, o.extendAt = nil, 0, 0, 0, noVector
	o.fpdus = 0
	o.sent = o.queued
}

// octets returns the number of queued octets.
func (o *output) octets() int { return int(o.queued - o.sent) }
