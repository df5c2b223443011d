package window

import (
	"cmp"
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Operation is a pending one-sided operation, or a reply to one of a peer.
type Operation struct {
	w       *Window
	t       *target
	kind    OpKind
	origin  []byte // nil if nothing is combined
	compare []byte
	result  []byte // destination of fetched data; may be nil
	size    int    // of the target memory
	offset  int
	typ     Type
	op      Op

	region     wire.Region
	parts      int  // pending transfers, messages and replies
	hasRequest bool // the caller keeps it, so it is not reused
	done       bool
	err        error
	atomics    []Atomic
	nextWord   uint64 // offset of the first word without an atomic
}

// OpKind is the kind of an operation.
type OpKind uint8

// The kinds.
const (
	PutOp OpKind = iota
	GetOp
	AccumulateOp
	CompareAndSwapOp
	replyOp
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
	Origin  []byte // ignored by NoOp
	Compare []byte // of CompareAndSwapOp
	Result  []byte // destination of a get or of the old elements; nil if they are not fetched
	Type    Type   // of accumulates
	Op      Op
	// Request: the caller uses the returned operation. It needs a lock epoch.
	Request bool
}

// StartOp starts an operation. Its result buffer must not overlap its other buffers. Unless
// a.Request is set, the returned operation may be reused when it completes.
func (w *Window) StartOp(a Access) (*Operation, error) {
	o := Operation{
		kind: a.Kind, origin: a.Origin, compare: a.Compare, result: a.Result, size: len(a.Origin), offset: a.Offset, typ: a.Type, op: a.Op,
	}
	n := a.Type.Size()
	switch a.Kind {
	case GetOp:
		o.size = len(a.Result)
	case AccumulateOp:
		if a.Op == NoOp {
			o.origin, o.size = nil, len(a.Result)
		}
		if a.Result != nil && len(a.Result) != o.size {
			return nil, fmt.Errorf("%w: a result buffer of %d bytes for %d bytes", ErrArg, len(a.Result), o.size)
		}
	case CompareAndSwapOp:
		if len(a.Origin) != n || len(a.Compare) != n || len(a.Result) != n {
			return nil, fmt.Errorf("%w: CompareAndSwap needs buffers of one %v: origin has %d bytes, compare %d, result %d", ErrArg, a.Type, len(a.Origin), len(a.Compare), len(a.Result))
		}
		o.op = Replace
	}
	return w.start(o, a.Rank, a.Request)
}

// checkOp returns an error if the epoch, the range, the type or the reduction of an operation
// is invalid.
func (w *Window) checkOp(o *Operation, rank int, hasRequest bool) error {
	if err := w.checkAccess(rank, hasRequest); err != nil {
		return err
	}
	t := &w.targets[rank]
	if o.offset < 0 || o.size > t.Size || o.offset > t.Size-o.size {
		return fmt.Errorf("%w: %d bytes at offset %d; the window of rank %d has %d", ErrRange, o.size, o.offset, rank, t.Size)
	}
	if o.kind != AccumulateOp && o.kind != CompareAndSwapOp {
		return nil
	}
	switch size := o.typ.Size(); {
	case size == 0:
		return fmt.Errorf("%w: %v", ErrType, o.typ)
	case !o.op.ValidFor(o.typ):
		return fmt.Errorf("%w: %v of %v", ErrOp, o.op, o.typ)
	case o.size%size != 0 || o.offset%size != 0:
		return fmt.Errorf("%w: %d bytes at offset %d: both must be multiples of %d, the size of %v", ErrArg, o.size, o.offset, size, o.typ)
	}
	return nil
}

// start validates op and copies it to an allocated operation, which it returns. It issues the
// operation now if prepareTarget allows it, else when the target is ready.
func (w *Window) start(op Operation, rank int, hasRequest bool) (*Operation, error) {
	if err := w.checkOp(&op, rank, hasRequest); err != nil {
		return nil, err
	}
	w.e.countOp(&op)
	o := w.e.allocOp()
	op.atomics = o.atomics
	*o = op
	t := &w.targets[rank]
	o.w, o.t, o.hasRequest = w, t, hasRequest
	w.fenceUsed = true
	if o.size == 0 {
		o.done = true
		return o, nil
	}
	if t.lost != nil {
		w.e.freeOps = append(w.e.freeOps, o)
		return nil, t.lost
	}
	var err error
	switch o.kind {
	case PutOp:
		o.region, err = w.e.transport.Source(o.origin)
	case GetOp:
		o.region, err = w.e.transport.Sink(o.result)
	}
	if err != nil {
		return nil, err
	}
	w.markUsed(rank)
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
	switch o.kind {
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
	return wire.Transfer{Local: o.region, N: o.size, Remote: o.t.remoteAddr(uint64(o.offset))}
}

// issue starts the transfers of an operation.
func (w *Window) issue(o *Operation) {
	t := o.t
	switch {
	case o.kind == PutOp:
		o.parts = 1
		w.e.transport.Write(t.peer, o.transfer(), o)
	case o.kind == GetOp:
		o.parts = 1
		w.e.transport.Read(t.peer, o.transfer(), o)
	case t.Atomics:
		t.atomicOps = append(t.atomicOps, o)
		w.startEligible(t)
	case o.kind == CompareAndSwapOp:
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
// operation to the free list unless the caller keeps it as a request.
func (o *Operation) complete() {
	e := o.w.e
	e.busy--
	o.done = true
	if o.region != nil {
		e.transport.Release(o.region)
		o.region = nil
	}
	if o.kind != replyOp {
		o.t.pending--
		o.t.err = cmp.Or(o.t.err, o.err)
	}
	const maxFree = 256
	if !o.hasRequest && len(e.freeOps) < maxFree {
		var reusable []byte // the buffer of a reply; others belong to the caller
		if o.kind == replyOp {
			reusable = o.origin[:0]
		}
		*o = Operation{atomics: o.atomics[:0], origin: reusable}
		e.freeOps = append(e.freeOps, o)
	}
}

// maxRequestSize limits sizes in messages of peers.
const maxRequestSize = math.MaxInt32
