package window

import (
	"cmp"
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Operation is a pending one-sided operation, or a reply to one of a peer.
type Operation struct {
	Access
	w    *Window
	t    *target
	size int // of the target memory

	region   wire.Region
	parts    int // pending transfers, messages and replies
	done     bool
	err      error
	atomics  []Atomic
	nextWord uint64 // offset of the first word without an atomic
}

// OpKind is the kind of an operation.
type OpKind uint8

// The kinds.
const (
	PutOp OpKind = iota
	GetOp
	AccumulateOp
	CompareAndSwapOp
	replyOp // the target's reply to an accumulate
)

// Done reports whether the operation is locally complete.
func (o *Operation) Done() bool { return o.done }

// Err is the error of a completed operation.
func (o *Operation) Err() error { return o.err }

// Access describes an operation of an origin on the window of a target.
type Access struct {
	Kind    OpKind
	Rank    int    // of the target
	Offset  int    // in the window of the target
	Origin  []byte // nil if nothing is combined; ignored by NoOp
	Compare []byte // of CompareAndSwapOp
	Result  []byte // destination of a get or of the old elements; nil if they are not fetched
	Type    Type   // of accumulates
	Op      Op
	// Request: the caller keeps the returned operation, so it is not reused. It needs a lock epoch.
	Request bool
}

// StartOp starts an operation. Its result buffer must not overlap its other buffers. Unless
// a.Request is set, a later StartOp may reuse the returned operation once it is complete.
func (w *Window) StartOp(a Access) (*Operation, error) {
	size := len(a.Origin)
	switch n := a.Type.Size(); a.Kind {
	case GetOp:
		size = len(a.Result)
	case AccumulateOp:
		if a.Op == NoOp {
			a.Origin, size = nil, len(a.Result)
		}
		if a.Result != nil && len(a.Result) != size {
			return nil, fmt.Errorf("%w: a result buffer of %d bytes for %d bytes", ErrArg, len(a.Result), size)
		}
	case CompareAndSwapOp:
		if len(a.Origin) != n || len(a.Compare) != n || len(a.Result) != n {
			return nil, fmt.Errorf("%w: CompareAndSwap needs buffers of one %v: origin has %d bytes, compare %d, result %d", ErrArg, a.Type, len(a.Origin), len(a.Compare), len(a.Result))
		}
		a.Op = Replace // if the element equals Compare
	}
	if err := w.checkOp(&a, size); err != nil {
		return nil, err
	}
	return w.start(a, size)
}

// checkOp returns an error if the epoch, the range, the type or the reduction of an operation on
// size bytes is invalid.
func (w *Window) checkOp(a *Access, size int) error {
	if err := w.checkAccess(a.Rank, a.Request); err != nil {
		return err
	}
	t := &w.targets[a.Rank]
	if a.Offset < 0 || size > t.Size || a.Offset > t.Size-size {
		return fmt.Errorf("%w: %d bytes at offset %d; the window of rank %d has %d", ErrRange, size, a.Offset, a.Rank, t.Size)
	}
	if a.Kind != AccumulateOp && a.Kind != CompareAndSwapOp {
		return nil
	}
	switch element := a.Type.Size(); {
	case element == 0:
		return fmt.Errorf("%w: %v", ErrType, a.Type)
	case !a.Op.validForAccumulate(a.Type):
		return fmt.Errorf("%w: %v of %v", ErrOp, a.Op, a.Type)
	case size%element != 0 || a.Offset%element != 0:
		return fmt.Errorf("%w: %d bytes at offset %d: both must be multiples of %d, the size of %v", ErrArg, size, a.Offset, element, a.Type)
	}
	return nil
}

// start starts a valid operation on size bytes. It issues the operation now if prepareTarget allows
// it, else when the target's post or lock grant arrives. An empty operation is complete at once.
func (w *Window) start(a Access, size int) (*Operation, error) {
	t := &w.targets[a.Rank]
	o := w.e.allocOp()
	*o = Operation{Access: a, w: w, t: t, size: size, atomics: o.atomics}
	w.e.countOp(o)
	w.access.fenceUsed = true
	if o.size == 0 {
		o.done = true
		return o, nil
	}
	if t.lost != nil { // o is not put into the free list: its buffers belong to the caller
		return nil, t.lost
	}
	var err error
	switch o.Kind {
	case PutOp:
		o.region, err = w.e.transport.Source(o.Origin)
	case GetOp:
		o.region, err = w.e.transport.Sink(o.Result)
	}
	if err != nil {
		return nil, err
	}
	w.access.markUsed(a.Rank)
	t.pending++
	w.e.busy++
	if w.prepareTarget(t) {
		w.issue(o)
	} else {
		t.waiting = append(t.waiting, o)
	}
	return o, nil
}

// countOp adds an operation to the statistics.
func (e *Engine) countOp(o *Operation) {
	switch o.Kind {
	case PutOp:
		e.Stats.Puts++
		e.Stats.PutBytes += uint64(o.size)
	case GetOp:
		e.Stats.Gets++
		e.Stats.GetBytes += uint64(o.size)
	case AccumulateOp, CompareAndSwapOp:
		e.Stats.Accumulates++
	}
}

// allocOp returns an operation from the free list, or a new one. It may have an atomics slice
// and an origin buffer to reuse.
func (e *Engine) allocOp() *Operation {
	n := len(e.freeOps)
	if n == 0 {
		return new(Operation)
	}
	o := e.freeOps[n-1]
	e.freeOps = e.freeOps[:n-1]
	return o
}

// remoteAddr returns the address of an offset in the target's memory.
func (t *target) remoteAddr(offset uint64) wire.Memory {
	m := t.Memory
	m.Addr += offset
	return m
}

// transfer returns the RDMA transfer of a put or get.
func (o *Operation) transfer() wire.Transfer {
	return wire.Transfer{Local: o.region, N: o.size, Remote: o.t.remoteAddr(uint64(o.Offset))}
}

// issue starts the transfers of an operation: an RDMA write or read, atomics of the NIC if the
// target's memory permits them, else messages to the target's CPU.
func (w *Window) issue(o *Operation) {
	t := o.t
	switch {
	case o.Kind == PutOp:
		o.parts = 1
		w.e.transport.Write(t.Peer, o.transfer(), o)
	case o.Kind == GetOp:
		o.parts = 1
		w.e.transport.Read(t.Peer, o.transfer(), o)
	case t.Atomics:
		t.atomicOps = append(t.atomicOps, o)
		w.startEligible(t)
	case o.Kind == CompareAndSwapOp:
		w.sendCompareSwap(o)
	default:
		w.sendAccumulate(o)
	}
}

// TransferDone completes a transfer or a message of an operation.
func (e *Engine) TransferDone(o *Operation, err error) {
	o.fail(err)
	o.partDone()
}

// fail records err as the operation's error, unless it has one.
func (o *Operation) fail(err error) { o.err = cmp.Or(o.err, err) }

// partDone completes one part of an operation, and the operation with its last part.
func (o *Operation) partDone() {
	if o.parts--; o.parts == 0 {
		o.complete()
	}
}

// complete completes an operation, records its error as that of the target, and returns the
// operation to the free list unless the caller keeps it as a request. A replyOp, a reply of this
// rank to a peer, does not count as an operation on the target.
func (o *Operation) complete() {
	e := o.w.e
	e.busy--
	o.done = true
	if o.region != nil {
		e.transport.Release(o.region)
		o.region = nil
	}
	if o.Kind != replyOp {
		o.t.pending--
		o.t.err = cmp.Or(o.t.err, o.err)
	}
	const maxFree = 256
	if !o.Request && len(e.freeOps) < maxFree {
		var reusable []byte // the buffer of a reply; others belong to the caller
		if o.Kind == replyOp {
			reusable = o.Origin[:0]
		}
		*o = Operation{atomics: o.atomics[:0], Access: Access{Origin: reusable}}
		e.freeOps = append(e.freeOps, o)
	}
}

// maxRequestSize limits sizes in messages of peers, which are not trusted: they fit in an int.
const maxRequestSize = math.MaxInt32
