package mpi

import (
	"cmp"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/datatype"
)

// typedBuffer is a buffer with a block of elements for each rank.
type typedBuffer struct {
	buf             []byte
	counts, offsets []int
	types           []*datatype.Type
}

// typedBlocks are the blocks of an Alltoallw. A block whose data is one run of bytes is sent from, or received
// in, the buffer of the program; others are packed before the first message, and unpacked after the last one.
type typedBlocks struct {
	send, recv typedBuffer
	in, out    coll.Layout
	packed     int // bytes
}

func (c *Comm) alltoallwCall(send, recv typedBuffer) (a collectiveCall) {
	a.init(c, coll.Alltoall)
	inPlace := isInPlace(send.buf)
	if inPlace {
		send = recv
	}
	if a.err == nil {
		a.err = cmp.Or(recv.check(c.size, "recv", (*datatype.Type).CheckReceive), send.check(c.size, "send", (*datatype.Type).Check))
	}
	if a.err != nil {
		return a
	}
	sent, received := send.size(c.me), recv.size(c.me)
	if a.check(sent == received, "a rank sends %d bytes to itself and receives %d", sent, received); a.err != nil {
		return a
	}
	a.layouts = c.rank.takeLayouts()
	b := &a.layouts.typed
	b.send, b.recv, b.packed = send, recv, 0
	b.in.Clear()
	b.out.Clear()
	for i := range c.size {
		b.addBlock(&b.out, &recv, coll.Out, i, false)
		b.addBlock(&b.in, &send, coll.In, i, inPlace)
	}
	b.placeOwn(c.me, inPlace)
	a.in, a.out, a.In, a.Out, a.types = send.buf, recv.buf, &b.in, &b.out, b
	return a
}

// check returns an error that names the argument.
func (t *typedBuffer) check(ranks int, side string, check func(t *datatype.Type, n, offset, count int) error) error {
	if len(t.counts) != ranks || len(t.offsets) != ranks || len(t.types) != ranks {
		return fmt.Errorf("%w: %d %sCounts, %d %sOffsets and %d %sTypes for %d ranks", ErrArg, len(t.counts), side, len(t.offsets), side, len(t.types), side, ranks)
	}
	for i, x := range t.types {
		if x == nil {
			return fmt.Errorf("%w: %sTypes[%d] is nil", ErrType, side, i)
		}
		if err := check(x, len(t.buf), t.offsets[i], t.counts[i]); err != nil {
			return fmt.Errorf("%s buffer, block of rank %d: %w", side, i, err)
		}
	}
	return nil
}

// size returns the size of the data of a block.
func (t *typedBuffer) size(i int) int { return t.counts[i] * t.types[i].Size() }

// addBlock adds a block to a layout. With pack it is packed in any case.
func (b *typedBlocks) addBlock(l *coll.Layout, t *typedBuffer, buffer coll.Buffer, i int, pack bool) {
	n := t.size(i)
	offset, _, isRun := t.types[i].Run(t.counts[i])
	switch {
	case n == 0:
		offset = 0
	case isRun && !pack:
		offset += t.offsets[i]
	default:
		buffer, offset = coll.Packed, b.packed
		b.packed += n
	}
	l.Counts, l.Offsets, l.Buffers = append(l.Counts, n), append(l.Offsets, offset), append(l.Buffers, buffer)
}

// placeOwn gives the block that a rank has for itself one place, unless both of its blocks are runs: it is
// packed into the receive buffer, or unpacked from the send buffer. In place there is nothing to do.
func (b *typedBlocks) placeOwn(me int, inPlace bool) {
	move := func(l, to *coll.Layout) { l.Offsets[me], l.Buffers[me] = to.Offsets[me], to.Buffers[me] }
	switch {
	case inPlace:
		b.in.Counts[me], b.out.Counts[me] = 0, 0
	case b.out.Buffers[me] == coll.Packed:
		move(&b.out, &b.in)
	case b.in.Buffers[me] == coll.Packed:
		move(&b.in, &b.out)
	}
}

// pack packs the blocks that are sent from other memory than the send buffer.
func (x *execution) pack() {
	if x.types == nil {
		return
	}
	t := &x.types.send
	for i, buffer := range x.In.Buffers {
		if packed := x.slice(coll.Slice{Buf: buffer, Off: x.In.Offsets[i], Len: x.In.Counts[i]}); buffer != coll.In && len(packed) > 0 {
			x.err = cmp.Or(x.err, t.types[i].Pack(packed, t.buf, t.offsets[i], t.counts[i]))
			x.copied += len(packed)
		}
	}
}

// unpack unpacks the blocks that were received in other memory than the receive buffer.
func (x *execution) unpack() {
	if x.types == nil || x.err != nil {
		return
	}
	t := &x.types.recv
	for i, buffer := range x.Out.Buffers {
		if packed := x.slice(coll.Slice{Buf: buffer, Off: x.Out.Offsets[i], Len: x.Out.Counts[i]}); buffer != coll.Out && len(packed) > 0 {
			x.err = cmp.Or(x.err, t.types[i].Unpack(t.buf, t.offsets[i], t.counts[i], packed))
			x.copied += len(packed)
		}
	}
	x.chargeCopies()
}
