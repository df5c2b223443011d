package mpi

import "github.com/fabrictest/fabrictest/mpi/coll"

// layouts are those of the buffers of a call with blocks of different sizes. Their memory is recycled, as that of
// executions is.
type layouts struct {
	in, out layout
	typed   typedBlocks
}

// layout is the layout of one buffer.
type layout struct {
	coll.Layout
	follows []int // memory of offsets that the program has not passed
}

// takeLayouts returns unused layouts.
func (k *rank) takeLayouts() *layouts {
	n := len(k.freeLayouts)
	if n == 0 {
		return new(layouts)
	}
	l := k.freeLayouts[n-1]
	k.freeLayouts = k.freeLayouts[:n-1]
	return l
}

// freeLayouts recycles the layouts of a call, which then keep no memory of the program.
func (x *execution) freeLayouts() {
	l := x.layouts
	if l == nil {
		return
	}
	l.in.Layout, l.out.Layout = coll.Layout{}, coll.Layout{}
	l.typed.send, l.typed.recv = typedBuffer{}, typedBuffer{}
	x.layouts = nil
	x.c.rank.freeLayouts = append(x.c.rank.freeLayouts, l)
}

// layout returns the layout of the buffer b, which is In or Out. With nil offsets the blocks follow each other.
func (a *collectiveCall) layout(c *Comm, buffer coll.Buffer, b []byte, counts, offsets []int) *coll.Layout {
	if a.err != nil {
		return unknown
	}
	if a.layouts == nil {
		a.layouts = c.rank.takeLayouts()
	}
	l := &a.layouts.in
	if buffer == coll.Out {
		l = &a.layouts.out
	}
	if offsets == nil {
		end := 0
		l.follows = l.follows[:0]
		for _, n := range counts {
			l.follows = append(l.follows, end)
			end += n
		}
		offsets = l.follows
	}
	a.check(len(counts) == c.size && len(offsets) == c.size, "%d counts and %d offsets for %d ranks", len(counts), len(offsets), c.size)
	for i := range min(len(counts), len(offsets)) {
		n, at := counts[i], offsets[i]
		a.check(n >= 0 && at >= 0 && at <= len(b)-n, "a block of %d bytes at offset %d, for rank %d, in a buffer of %d bytes", n, at, i, len(b))
	}
	l.Layout = coll.Layout{Counts: counts, Offsets: offsets}
	return &l.Layout
}
