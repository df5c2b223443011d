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
	what    what
	origin  []byte // nil where nothing is to be combined
	compare []byte
	result  []byte // where what was there goes, if anywhere
	size    int    // of the memory that it is about
	at      int
	typ     Type
	op      Op

	region  p2p.Region
	parts   int  // that are under way
	kept    bool // by whoever began it
	done    bool
	err     error
	atomics []Atomic
	next    uint64 // the first word that no atomic has been begun for
}

// what an operation does.
type what uint8

const (
	put what = iota
	get
	accumulate
	swap
	answer
)

// Done reports whether it is complete, as far as its buffers go.
func (o *Operation) Done() bool { return o.done }

// Err is what it failed with.
func (o *Operation) Err() error { return o.err }

// Put writes to a rank's part. The operation is the caller's to look at only if it
// asks for a request.
func (w *Window) Put(origin []byte, rank, at int, request bool) (*Operation, error) {
	return w.begin(Operation{what: put, origin: origin, size: len(origin), at: at}, rank, request)
}

// Get reads from a rank's part.
func (w *Window) Get(into []byte, rank, at int, request bool) (*Operation, error) {
	return w.begin(Operation{what: get, result: into, size: len(into), at: at}, rank, request)
}

// Accumulate combines with what is in a rank's part, and brings what was there if
// there is a result to bring it to, which shares no memory with the origin. With NoOp
// the origin counts for nothing.
func (w *Window) Accumulate(origin, result []byte, rank, at int, t Type, op Op, request bool) (*Operation, error) {
	o := Operation{what: accumulate, origin: origin, result: result, size: len(origin), at: at, typ: t, op: op}
	if op == NoOp {
		o.origin, o.size = nil, len(result)
	}
	if result != nil && len(result) != o.size {
		return nil, fmt.Errorf("%w: %d bytes for the result of %d", ErrArg, len(result), o.size)
	}
	return w.begin(o, rank, request)
}

// Swap puts an element in the place of one that is equal to compare. The result shares
// no memory with either.
func (w *Window) CompareAndSwap(origin, compare, result []byte, rank, at int, t Type) (*Operation, error) {
	if len(origin) != t.Size() || len(compare) != t.Size() || len(result) != t.Size() {
		return nil, fmt.Errorf("%w: a swap is of one %v: %d bytes take the place of %d, and %d are for the result", ErrArg, t, len(origin), len(compare), len(result))
	}
	return w.begin(Operation{what: swap, origin: origin, compare: compare, result: result, size: t.Size(), at: at, typ: t, op: Replace}, rank, false)
}

// check says what is wrong with an operation.
func (w *Window) check(o *Operation, rank int, request bool) error {
	if err := w.admits(rank, request); err != nil {
		return err
	}
	t := &w.targets[rank]
	if o.at < 0 || o.size > t.Size || o.at > t.Size-o.size {
		return fmt.Errorf("%w: %d bytes at %d; the window of rank %d has %d", ErrRange, o.size, o.at, rank, t.Size)
	}
	if o.what != accumulate && o.what != swap {
		return nil
	}
	switch size := o.typ.Size(); {
	case size == 0:
		return fmt.Errorf("%w: %v", ErrType, o.typ)
	case !o.op.ValidFor(o.typ):
		return fmt.Errorf("%w: %v of %v", ErrOp, o.op, o.typ)
	case o.size%size != 0 || o.at%size != 0:
		return fmt.Errorf("%w: %d bytes at %d: both must be multiples of the %d of %v", ErrArg, o.size, o.at, size, o.typ)
	}
	return nil
}

// begin begins an operation. It goes at once, or when its target is ready.
func (w *Window) begin(made Operation, rank int, request bool) (*Operation, error) {
	if err := w.check(&made, rank, request); err != nil {
		return nil, err
	}
	w.e.count(&made)
	o := w.e.operation()
	made.atomics = o.atomics
	*o = made
	t := &w.targets[rank]
	o.w, o.t, o.kept = w, t, request
	w.used = true
	if o.size == 0 {
		o.done = true
		return o, nil
	}
	if t.lost != nil {
		w.e.idle = append(w.e.idle, o)
		return nil, t.lost
	}
	var err error
	switch o.what {
	case put:
		o.region, err = w.e.fabric.Source(o.origin)
	case get:
		o.region, err = w.e.fabric.Sink(o.result)
	}
	if err != nil {
		return nil, err
	}
	w.touch(rank)
	t.pending++
	w.e.busy++
	if !w.ready(t) {
		t.waiting = append(t.waiting, o)
		return o, nil
	}
	w.issue(o)
	return o, nil
}

func (e *Engine) count(o *Operation) {
	switch o.what {
	case put:
		e.Stats.Puts++
		e.Stats.PutBytes += uint64(o.size)
	case get:
		e.Stats.Gets++
		e.Stats.GetBytes += uint64(o.size)
	case accumulate, swap:
		e.Stats.Accumulates++
	}
}

// operation is one to be filled in.
func (e *Engine) operation() *Operation {
	n := len(e.idle)
	if n == 0 {
		return new(Operation)
	}
	o := e.idle[n-1]
	e.idle = e.idle[:n-1]
	return o
}

// place is where in the target's memory an offset is.
func (t *target) place(at uint64) wire.Memory {
	m := t.Memory
	m.Addr += at
	return m
}

// issue has an operation go.
func (w *Window) issue(o *Operation) {
	t, f := o.t, w.e.fabric
	switch {
	case o.what == put:
		o.parts = 1
		f.Write(t.peer, o.region, o.size, t.place(uint64(o.at)), o)
	case o.what == get:
		o.parts = 1
		f.Read(t.peer, o.region, o.size, t.place(uint64(o.at)), o)
	case t.Atomics:
		w.enqueue(o)
	case o.what == swap:
		w.sendSwap(o)
	default:
		w.sendAccumulate(o)
	}
}

// Finished takes the end of what the fabric did for an operation: a transfer, or the
// leaving of a word.
func (e *Engine) TransferDone(o *Operation, err error) {
	o.fail(err)
	o.part()
}

// fail notes an error, unless there was one before.
func (o *Operation) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// part ends one part of an operation.
func (o *Operation) part() {
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
		e.fabric.Release(o.region)
		o.region = nil
	}
	if o.what != answer {
		o.t.pending--
		if o.err != nil && o.t.err == nil {
			o.t.err = o.err
		}
	}
	const worthKeeping = 256
	if !o.kept && len(e.idle) < worthKeeping {
		*o = Operation{atomics: o.atomics[:0], origin: answerBuffer(o)}
		e.idle = append(e.idle, o)
	}
}

// answerBuffer is what an answer lay in, for another to lie in.
func answerBuffer(o *Operation) []byte {
	if o.what == answer {
		return o.origin[:0]
	}
	return nil
}

// maxSize keeps what a peer says of sizes within what can be counted.
const maxSize = math.MaxInt32
