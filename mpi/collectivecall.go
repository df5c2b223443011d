package mpi

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/coll"
)

// collectiveCall has the arguments of a collective call. err says that they are invalid.
type collectiveCall struct {
	coll.Call
	in, out, shared []byte
	regions         *sharedRegions // of a nonblocking operation; nil if it needs no shared memory
	layouts         *layouts       // whose memory a.In and a.Out refer to; nil without
	types           *typedBlocks   // of an Alltoallw
	reduction
	err error
}

// init sets what all operations have.
func (a *collectiveCall) init(c *Comm, op coll.Op) { a.Op, a.err = op, c.check() }

// check sets the error unless the condition holds, or there is an error. Numbers are passed as they are,
// because a call without an error allocates nothing.
func (a *collectiveCall) check(holds bool, format string, numbers ...int) {
	if a.err != nil || holds {
		return
	}
	args := []any{ErrArg}
	for _, n := range numbers {
		args = append(args, n)
	}
	a.err = fmt.Errorf("%w: "+format, args...)
}

func (c *Comm) barrierCall() (a collectiveCall) {
	a.init(c, coll.Barrier)
	return a
}

func (c *Comm) bcastCall(buf []byte, root int) (a collectiveCall) {
	a.init(c, coll.Bcast)
	a.setRoot(c, root)
	a.Bytes, a.out = len(buf), buf
	return a
}

// setRoot sets the root, and reports whether it is this rank.
func (a *collectiveCall) setRoot(c *Comm, root int) (isRoot bool) {
	if a.err == nil {
		a.Root, a.err = root, c.checkRoot(root)
	}
	return a.err == nil && root == c.me
}

func (c *Comm) scatterCall(send, recv []byte, root int) (a collectiveCall) {
	a.init(c, coll.Scatter)
	a.in, a.out = send, recv
	a.setRootWithBlocks(c, root, recv, send)
	return a
}

// setRootWithBlocks sets the root, whose buffer all has a block for each rank, and the size of a block:
// that of own, or if root passes InPlace there, that of a block of all.
func (a *collectiveCall) setRootWithBlocks(c *Comm, root int, own, all []byte) {
	isRoot := a.setRoot(c, root)
	a.Bytes, a.InPlace = len(own), isInPlace(own)
	a.check(isRoot || !a.InPlace, "only root can pass InPlace")
	if !isRoot {
		return
	}
	if a.InPlace {
		a.Bytes = len(all) / c.size
	}
	a.checkBlocks(c, all)
}

// checkBlocks checks that a buffer has a block for each rank.
func (a *collectiveCall) checkBlocks(c *Comm, b []byte) {
	if a.err == nil {
		a.check(len(b) == a.Bytes*c.size, "a buffer of %d bytes for blocks of %d bytes from %d ranks", len(b), a.Bytes, c.size)
	}
}

// unknown is the layout at ranks that do not know the sizes of blocks: these may differ.
var unknown = &coll.Layout{}

func (c *Comm) scattervCall(send []byte, counts, offsets []int, recv []byte, root int) (a collectiveCall) {
	a.init(c, coll.Scatter)
	isRoot := a.setRoot(c, root)
	a.in, a.out, a.Bytes, a.In = send, recv, len(recv), unknown
	a.InPlace = isInPlace(recv)
	a.check(isRoot || !a.InPlace, "only root can scatter in place")
	if isRoot {
		a.In = a.layout(c, coll.In, send, counts, offsets)
		a.checkOwn(c, a.In)
	}
	return a
}

// checkOwn checks that the buffer for this rank's block, unless in place, has the size of the layout.
func (a *collectiveCall) checkOwn(c *Comm, l *coll.Layout) {
	if a.err != nil {
		return
	}
	if a.InPlace {
		a.Bytes = l.Counts[c.me]
	}
	a.check(a.Bytes == l.Counts[c.me], "a buffer of %d bytes for a block of %d bytes", a.Bytes, l.Counts[c.me])
}

func (c *Comm) gatherCall(send, recv []byte, root int) (a collectiveCall) {
	a.init(c, coll.Gather)
	a.in, a.out = send, recv
	a.setRootWithBlocks(c, root, send, recv)
	return a
}

func (c *Comm) gathervCall(send, recv []byte, counts, offsets []int, root int) (a collectiveCall) {
	a.init(c, coll.Gather)
	isRoot := a.setRoot(c, root)
	a.in, a.out, a.Bytes, a.Out = send, recv, len(send), unknown
	a.InPlace = isInPlace(send)
	a.check(isRoot || !a.InPlace, "only root can gather in place")
	if isRoot {
		a.Out = a.layout(c, coll.Out, recv, counts, offsets)
		a.checkOwn(c, a.Out)
	}
	return a
}

func (c *Comm) allgatherCall(local, all []byte) (a collectiveCall) {
	a.init(c, coll.Allgather)
	a.in, a.out, a.Bytes = local, all, len(local)
	if a.InPlace = isInPlace(local); a.InPlace && a.err == nil {
		a.Bytes = len(all) / c.size
	}
	a.checkBlocks(c, all)
	return a
}

func (c *Comm) allgathervCall(local, all []byte, counts, offsets []int) (a collectiveCall) {
	a.init(c, coll.Allgather)
	a.in, a.out, a.Bytes, a.InPlace = local, all, len(local), isInPlace(local)
	a.Out = a.layout(c, coll.Out, all, counts, offsets)
	a.checkOwn(c, a.Out)
	return a
}

func (c *Comm) alltoallCall(send, recv []byte) (a collectiveCall) {
	a.init(c, coll.Alltoall)
	a.in, a.out = send, recv
	if a.InPlace = isInPlace(send); a.InPlace {
		a.in = nil
		send = recv
	}
	if a.err == nil {
		a.check(len(send) == len(recv) && len(send)%c.size == 0, "%d bytes to send and %d to receive; the sizes must be equal and a multiple of the %d ranks", len(send), len(recv), c.size)
		a.Bytes = len(send) / c.size
	}
	return a
}

func (c *Comm) alltoallvCall(send []byte, sendCounts, sendOffsets []int, recv []byte, recvCounts, recvOffsets []int) (a collectiveCall) {
	a.init(c, coll.Alltoall)
	a.in, a.out = send, recv
	a.Out = a.layout(c, coll.Out, recv, recvCounts, recvOffsets)
	if a.InPlace = isInPlace(send); a.InPlace {
		a.in, a.In = nil, a.Out
	} else {
		a.In = a.layout(c, coll.In, send, sendCounts, sendOffsets)
	}
	if a.err == nil {
		a.check(a.In.Counts[c.me] == a.Out.Counts[c.me], "a rank sends %d bytes to itself and receives %d", a.In.Counts[c.me], a.Out.Counts[c.me])
	}
	return a
}

// reduction says how elements are combined.
type reduction struct {
	t    Type
	op   Op
	user *userOp // of operation op; nil for those that are predefined
}

// combine sets dst to dst op src, or to src op dst.
func (r *reduction) combine(dst, src []byte, srcIsFirst bool) {
	switch {
	case r.user == nil:
		reduce(dst, src, r.t, r.op)
	case srcIsFirst || r.user.commutative:
		r.user.combine(src, dst)
	default:
		r.user.combine(dst, src)
		copy(dst, src)
	}
}

// initReduction sets what all reductions have. The input is in the buffer send, or with InPlace in recv.
func (a *collectiveCall) initReduction(c *Comm, op coll.Op, send, recv []byte, t Type, by Op) {
	a.init(c, op)
	a.in, a.out, a.InPlace = send, recv, isInPlace(send)
	a.t, a.op = t, by
	if a.err == nil {
		a.user = c.rank.userOp(by)
	}
	a.Element = t.Size()
	if a.user != nil {
		a.Element, a.Ordered = a.user.size, !a.user.commutative
	}
	switch {
	case a.err != nil:
	case a.user == nil && t.Size() == 0:
		a.err = fmt.Errorf("%w: %v", ErrType, t)
	case a.user == nil && (!by.ValidFor(t) || by == Replace || by == NoOp):
		a.err = fmt.Errorf("%w: %v of %v", ErrOp, by, t)
	}
}

// checkElements checks that there are n bytes of whole elements in each buffer, and that these differ.
func (a *collectiveCall) checkElements(n int, needsOut bool) {
	isSame := needsOut && n > 0 && unsafe.SliceData(a.in) == unsafe.SliceData(a.out)
	a.check(!isSame, "send and recv are the same buffer; pass InPlace to send")
	a.check(a.InPlace || len(a.in) == n, "%d bytes to combine in a buffer of %d bytes", len(a.in), n)
	a.check(!needsOut || len(a.out) == n, "a result of %d bytes in a buffer of %d bytes", n, len(a.out))
	if a.err == nil {
		a.check(n%a.Element == 0, "%d bytes are not a whole number of elements of %d bytes", n, a.Element)
	}
}

func (c *Comm) reduceCall(send, recv []byte, t Type, op Op, root int) (a collectiveCall) {
	a.initReduction(c, coll.Reduce, send, recv, t, op)
	isRoot := a.setRoot(c, root)
	a.check(isRoot || !a.InPlace, "only root can reduce in place")
	a.Bytes = len(send)
	if a.InPlace {
		a.Bytes = len(recv)
	}
	a.checkElements(a.Bytes, isRoot)
	return a
}

func (c *Comm) allreduceCall(send, recv []byte, t Type, op Op) (a collectiveCall) {
	a.initReduction(c, coll.Allreduce, send, recv, t, op)
	a.Bytes = len(recv)
	a.checkElements(a.Bytes, true)
	return a
}

func (c *Comm) reduceScatterBlockCall(send, recv []byte, t Type, op Op) (a collectiveCall) {
	a.initReduction(c, coll.ReduceScatter, send, recv, t, op)
	if a.err != nil {
		return a
	}
	a.Bytes = len(recv)
	if a.InPlace {
		a.check(len(recv)%c.size == 0, "%d bytes are not a whole number of blocks for %d ranks", len(recv), c.size)
		a.Bytes /= c.size
	}
	a.check(a.InPlace || len(send) == a.Bytes*c.size, "%d bytes to combine in blocks of %d bytes for %d ranks", len(send), a.Bytes, c.size)
	a.check(a.Bytes%a.Element == 0, "blocks of %d bytes are not a whole number of elements of %d bytes", a.Bytes, a.Element)
	return a
}

func (c *Comm) reduceScatterCall(send, recv []byte, counts []int, t Type, op Op) (a collectiveCall) {
	a.initReduction(c, coll.ReduceScatter, send, recv, t, op)
	input := send
	if a.InPlace {
		input = recv
	}
	a.In = a.layout(c, coll.In, input, counts, nil)
	a.Bytes = len(recv)
	a.checkOwn(c, a.In)
	if a.err == nil {
		whole := !slices.ContainsFunc(counts, func(n int) bool { return n%a.Element != 0 })
		a.check(whole, "not all blocks are a whole number of elements of %d bytes", a.Element)
	}
	return a
}

func (c *Comm) scanCall(send, recv []byte, t Type, op Op) (a collectiveCall) {
	a.initReduction(c, coll.Scan, send, recv, t, op)
	a.Bytes = len(recv)
	a.checkElements(a.Bytes, true)
	return a
}

func (c *Comm) exscanCall(send, recv []byte, t Type, op Op) (a collectiveCall) {
	a = c.scanCall(send, recv, t, op)
	a.Op = coll.Exscan
	return a
}
