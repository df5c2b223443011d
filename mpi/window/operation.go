package window

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Operation is one of ours on a rank's part of a window, or an answer to one of
// theirs.
type Operation struct {
	w       *Window
	t       *target
	kind    opKind
	origin  []byte // nil where nothing is to be combined
	compare []byte
	result  []byte // where what was there goes, if anywhere
	size    int    // of the memory that it is about
	offset  int
	typ     Type
	op      Op

	region     p2p.Region
	parts      int  // that are under way
	hasRequest bool // by whoever began it
	done       bool
	err        error
	atomics    []Atomic
	nextWord   uint64 // the first word that no atomic has been begun for
}

// what an operation does.
type opKind uint8

const (
	putOp opKind = iota
	getOp
	accumulateOp
	casOp
	replyOp
)

// Done reports whether it is complete, as far as its buffers go.
func (o *Operation) Done() bool { return o.done }

// Err is what it failed with.
func (o *Operation) Err() error { return o.err }

// Put writes to a rank's part. The operation is the caller's to look at only if it
// asks for a request.
func (w *Window) Put(origin []byte, rank, at int, request bool) (*Operation, error) {
	return w.start(Operation{kind: putOp, origin: origin, size: len(origin), offset: at}, rank, request)
}

// Get reads from a rank's part.
func (w *Window) Get(into []byte, rank, at int, request bool) (*Operation, error) {
	return w.start(Operation{kind: getOp, result: into, size: len(into), offset: at}, rank, request)
}

// Accumulate combines with what is in a rank's part, and brings what was there if
// there is a result to bring it to, which shares no memory with the origin. With NoOp
// the origin counts for nothing.
func (w *Window) Accumulate(origin, result []byte, rank, at int, t Type, op Op, request bool) (*Operation, error) {
	o := Operation{kind: accumulateOp, origin: origin, result: result, size: len(origin), offset: at, typ: t, op: op}
	if op == NoOp {
		o.origin, o.size = nil, len(result)
	}
	if result != nil && len(result) != o.size {
		return nil, fmt.Errorf("%w: %d bytes for the result of %d", ErrArg, len(result), o.size)
	}
	return w.start(o, rank, request)
}

// Swap puts an element in the place of one that is equal to compare. The result shares
// no memory with either.
func (w *Window) CompareAndSwap(origin, compare, result []byte, rank, at int, t Type) (*Operation, error) {
	if len(origin) != t.Size() || len(compare) != t.Size() || len(result) != t.Size() {
		return nil, fmt.Errorf("%w: a swap is of one %v: %d bytes take the place of %d, and %d are for the result", ErrArg, t, len(origin), len(compare), len(result))
	}
	return w.start(Operation{kind: casOp, origin: origin, compare: compare, result: result, size: t.Size(), offset: at, typ: t, op: Replace}, rank, false)
}

// check says what is wrong with an operation.
func (w *Window) check(o *Operation, rank int, request bool) error {
	if err := w.checkAccess(rank, request); err != nil {
		return err
	}
	t := &w.targets[rank]
	if o.offset < 0 || o.size > t.Size || o.offset > t.Size-o.size {
		return fmt.Errorf("%w: %d bytes at %d; the window of rank %d has %d", ErrRange, o.size, o.offset, rank, t.Size)
	}
	if o.kind != accumulateOp && o.kind != casOp {
		return nil
	}
	switch size := o.typ.Size(); {
	case size == 0:
		return fmt.Errorf("%w: %v", ErrType, o.typ)
	case !o.op.ValidFor(o.typ):
		return fmt.Errorf("%w: %v of %v", ErrOp, o.op, o.typ)
	case o.size%size != 0 || o.offset%size != 0:
		return fmt.Errorf("%w: %d bytes at %d: both must be multiples of the %d of %v", ErrArg, o.size, o.offset, size, o.typ)
	}
	return nil
}

// begin begins an operation. It goes at once, or when its target is ready.
func (w *Window) start(op Operation, rank int, request bool) (*Operation, error) {
	if err := w.check(&op, rank, request); err != nil {
		return nil, err
	}
	w.e.count(&op)
	o := w.e.allocOp()
	op.atomics = o.atomics
	*o = op
	t := &w.targets[rank]
	o.w, o.t, o.hasRequest = w, t, request
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
	case putOp:
		o.region, err = w.e.transport.Source(o.origin)
	case getOp:
		o.region, err = w.e.transport.Sink(o.result)
	}
	if err != nil {
		return nil, err
	}
	w.markUsed(rank)
	t.pending++
	w.e.busy++
	if !w.targetReady(t) {
		t.waiting = append(t.waiting, o)
		return o, nil
	}
	w.issue(o)
	return o, nil
}

func (e *Engine) count(o *Operation) {
	switch o.kind {
	case putOp:
		e.Stats.Puts++
		e.Stats.PutBytes += uint64(o.size)
	case getOp:
		e.Stats.Gets++
		e.Stats.GetBytes += uint64(o.size)
	case accumulateOp, casOp:
		e.Stats.Accumulates++
	}
}

// operation is one to be filled in.
func (e *Engine) allocOp() *Operation {
	n := len(e.freeOps)
	if n == 0 {
		return new(Operation)
	}
	o := e.freeOps[n-1]
	e.freeOps = e.freeOps[:n-1]
	return o
}

// place is where in the target's memory an offset is.
func (t *target) remoteAddr(at uint64) wire.Memory {
	m := t.Memory
	m.Addr += at
	return m
}

// issue has an operation go.
func (w *Window) issue(o *Operation) {
	t, f := o.t, w.e.transport
	switch {
	case o.kind == putOp:
		o.parts = 1
		f.Write(t.peer, o.region, o.size, t.remoteAddr(uint64(o.offset)), o)
	case o.kind == getOp:
		o.parts = 1
		f.Read(t.peer, o.region, o.size, t.remoteAddr(uint64(o.offset)), o)
	case t.Atomics:
		w.enqueue(o)
	case o.kind == casOp:
		w.sendSwap(o)
	default:
		w.sendAccumulate(o)
	}
}

// Finished takes the end of what the fabric did for an operation: a transfer, or the
// leaving of a word.
func (e *Engine) TransferDone(o *Operation, err error) {
	o.fail(err)
	o.partDone()
}

// fail notes an error, unless there was one before.
func (o *Operation) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// part ends one part of an operation.
func (o *Operation) partDone() {
	if o.parts--; o.parts == 0 {
		o.complete()
	}
}

// complete ends an operation.
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
		if o.err != nil && o.t.err == nil {
			o.t.err = o.err
		}
	}
	const worthKeeping = 256
	if !o.hasRequest && len(e.freeOps) < worthKeeping {
		*o = Operation{atomics: o.atomics[:0], origin: replyBuffer(o)}
		e.freeOps = append(e.freeOps, o)
	}
}

// answerBuffer is what an answer lay in, for another to lie in.
func replyBuffer(o *Operation) []byte {
	if o.kind == replyOp {
		return o.origin[:0]
	}
	return nil
}

// maxSize keeps what a peer says of sizes within what can be counted.
const maxRequestSize = math.MaxInt32
