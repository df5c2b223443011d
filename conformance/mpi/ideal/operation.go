package ideal

import (
	"bytes"
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// op is an operation on a rank's window.
type op struct {
	*world
	win        *win
	origin     int
	target     int
	offset     int  // in the window of target
	put, get   bool // neither: an accumulate
	data       []byte
	compare    []byte
	result     []byte
	elemType   mpi.Type
	op         mpi.Op
	epochReady func() bool
	savedMem   []byte // with a defect, the memory as it was at the first step
	done       bool
}

// isAccumulate reports whether the operation is an accumulate or a compare-and-swap.
func (o *op) isAccumulate() bool { return !o.put && !o.get }

// hasResult reports whether the operation returns a result.
func (o *op) hasResult() bool { return o.get || o.result != nil }

// copyOrigin copies the origin buffers that the operation needs: the program can then reuse them.
func (o *op) copyOrigin() {
	o.data, o.compare = bytes.Clone(o.data), bytes.Clone(o.compare)
}

// size returns the number of bytes of the window that the operation accesses.
func (o *op) size() int {
	if o.data == nil { // a get, or a get-accumulate with NoOp
		return len(o.result)
	}
	return len(o.data)
}

// tryApply applies the operation if its epoch has begun at the target and the target can receive,
// and reports whether it did anything. Some defects need two calls: the first saves the target's
// memory, the second applies the operation.
func (o *op) tryApply() bool {
	if o.Defects.EmptyOperationsHang && o.size() == 0 || !o.epochReady() || !o.world.canReceive(o.win.c.group.ranks[o.target]) {
		return false
	}
	if o.isAccumulate() && !o.Defects.AccumulatesUnordered { // accumulates of an origin are applied in order
		first := slices.IndexFunc(o.world.ops, func(other *op) bool {
			return other.win == o.win && other.target == o.target && other.isAccumulate()
		})
		if o.world.ops[first] != o {
			return false
		}
	}
	mem := o.win.shared.mem[o.target]
	if o.isAccumulate() && o.Defects.AccumulatesRace && o.savedMem == nil {
		o.savedMem = bytes.Clone(mem)
		return true
	}
	if o.Defects.NeighboursRace && o.elemType.Size() < 8 && o.isAccumulate() {
		wordStart := o.offset &^ 7
		wordEnd, end := wordStart+8, min(o.offset+o.size(), wordStart+8)
		if o.savedMem == nil {
			o.savedMem = bytes.Clone(mem)
			return true
		}
		// Restore the rest of the word, and lose the operations on it since the first step.
		copy(mem[wordStart:o.offset], o.savedMem[wordStart:])
		copy(mem[end:wordEnd], o.savedMem[end:])
	}
	if o.apply(mem) {
		o.done = true
		o.world.ops = slices.DeleteFunc(o.world.ops, func(other *op) bool { return other == o })
	}
	return true
}

// apply applies the operation to the memory of its target, and reports whether it is finished.
// Defects (deliberate errors) lose or misplace data.
func (o *op) apply(mem []byte) bool {
	accessed := mem[o.offset : o.offset+o.size()]
	switch {
	case o.Defects.SelfPutsLost && o.origin == o.target && o.put:
	case o.Defects.PutsCut && o.put && len(o.data) > 1:
		copy(accessed, o.data[:len(o.data)-1])
	case o.Defects.PutsCutLarge && o.put && len(o.data) > 64<<10:
		copy(accessed, o.data[:64<<10])
	case o.Defects.PutsOff && o.put && o.offset+o.size() < len(mem):
		copy(mem[o.offset+1:], o.data)
	case o.put:
		copy(accessed, o.data)
		o.win.shared.lastOrigins[o.origin] = o.data // for the defect OriginsReused
	case o.get && o.Defects.GetsNothing:
	case o.get:
		n := copy(o.result, accessed)
		if o.Defects.GetsCut && n > 1 {
			o.result[n-1] = 0
		}
	default:
		return o.combine(accessed)
	}
	return true
}

// combine applies an accumulate or a compare-and-swap to the accessed bytes of its target, and
// reports whether it is finished. With the defect ElementsTorn a Replace takes two calls: the first
// replaces half of each element. With AccumulatesRace it computes with savedMem, the memory as it
// was when the operation began.
func (o *op) combine(accessed []byte) bool {
	old := bytes.Clone(accessed)
	if o.savedMem != nil && o.Defects.AccumulatesRace {
		copy(accessed, o.savedMem[o.offset:])
		old = bytes.Clone(accessed)
	}
	if o.Defects.ElementsTorn && o.op == mpi.Replace && o.savedMem == nil {
		for i := 0; i+8 <= len(accessed); i += 8 { // the other halves follow in the second step
			copy(accessed[i:i+4], o.data[i:])
		}
		o.savedMem = old
		return false
	}
	kind := o.op
	switch {
	case o.compare != nil:
		if bytes.Equal(accessed, o.compare) != o.Defects.SwapsUnequal && !o.Defects.NeverSwaps || o.Defects.AlwaysSwaps {
			copy(accessed, o.data)
		}
	case o.Defects.AccumulatesReplace && kind != mpi.NoOp:
		copy(accessed, o.data)
	case o.Defects.ReducesBySum && kind != mpi.NoOp && kind != mpi.Replace:
		combine(accessed, o.data, o.elemType, mpi.Sum, &o.Defects)
	case o.Defects.NoOpWrites && kind == mpi.NoOp && o.data != nil:
		copy(accessed, o.data)
	case kind != mpi.NoOp:
		combine(accessed, o.data, o.elemType, kind, &o.Defects)
	}
	if o.result != nil {
		if o.Defects.OriginsReused { // overwrite the origin buffer of the target's last put
			copy(o.win.shared.lastOrigins[o.target], old)
		}
		if o.Defects.FetchesNew {
			copy(o.result, accessed)
		} else {
			copy(o.result, old)
		}
	}
	return true
}

// epoch returns a function that reports whether an operation on target may be applied yet. It fails
// with ErrRMASync if no access epoch includes target, or if needsLock is true and target is not
// locked.
func (w *win) epoch(target int, needsLock bool) (func() bool, error) {
	if lock := w.heldLocks[target]; lock != nil {
		return func() bool { return lock.granted }, nil
	}
	switch {
	case needsLock && !w.c.Defects.EpochsUnchecked:
		return nil, mpi.ErrRMASync
	case slices.Contains(w.accessGroup, target): // between Start and Complete
		n := w.startCounts[target]
		return func() bool { return w.posted(target, n) }, nil
	case w.fenced && w.accessGroup == nil: // between fences
		n := w.shared.fenceCounts[w.c.rank]
		return func() bool { return w.shared.fenceCounts[target] >= n || w.c.Defects.FenceAlone }, nil
	case w.c.Defects.EpochsUnchecked:
		return func() bool { return true }, nil
	}
	return nil, mpi.ErrRMASync
}

// issue starts an operation, or returns why it is invalid. needsLock is as in epoch.
func (w *win) issue(o *op, needsLock bool) error {
	if err := w.startCall(); err != nil {
		return err
	}
	if o.target == mpi.ProcNull && !w.c.Defects.NullRefused {
		o.done = true
		return nil
	}
	if !w.c.hasRank(o.target) {
		o.done = true // a call that a defect accepts has no effect
		return unless(w.c.Defects.RanksUnchecked, mpi.ErrRank)
	}
	if err := w.checkOperation(o); err != nil {
		return err
	}
	size := len(w.shared.mem[o.target])
	if o.offset < 0 || o.offset+o.size() > size {
		if w.c.Defects.RangeErrorWrites && o.put && o.offset >= 0 && o.offset < size {
			copy(w.shared.mem[o.target][o.offset:], o.data)
		}
		o.done = true // a call that a defect accepts has no effect beyond that
		return unless(w.c.Defects.RangesUnchecked, mpi.ErrRMARange)
	}
	ready, err := w.epoch(o.target, needsLock)
	if err != nil {
		return err
	}
	if w.c.Defects.WindowRanksOfWorld { // the operation goes to the caller's own window
		o.target = w.c.rank
	}
	w.fenceUsed = true
	o.world, o.win, o.origin, o.epochReady = w.c.world, w, w.c.rank, ready
	w.ops = append(w.ops, o)
	o.world.ops = append(o.world.ops, o)
	return nil
}

// checkOperation returns an error for an invalid type, operation or operand.
func (w *win) checkOperation(o *op) error {
	switch {
	case o.put || o.get || w.c.Defects.ReductionsUnchecked:
		return nil
	case int(o.elemType) > int(mpi.Float64):
		return mpi.ErrType
	case int(o.op) > int(mpi.NoOp), integersOnly(o.op) && floating(o.elemType):
		return mpi.ErrOp
	case o.compare != nil && (len(o.data) != o.elemType.Size() || len(o.compare) != len(o.data)):
		return mpi.ErrArg
	case o.size()%o.elemType.Size() != 0, o.offset%o.elemType.Size() != 0, o.result != nil && o.data != nil && len(o.result) != len(o.data):
		return mpi.ErrArg
	}
	return nil
}

// Values of needsLock: operations with a request need a locked target.
const anyEpoch, lockEpoch = false, true

func (w *win) Put(d []byte, target, offset int) error {
	return w.fail("Put", w.issue(&op{put: true, data: d, target: target, offset: offset}, anyEpoch))
}

func (w *win) Get(d []byte, target, offset int) error {
	return w.fail("Get", w.issue(&op{get: true, result: d, target: target, offset: offset}, anyEpoch))
}

func (w *win) Accumulate(d []byte, target, offset int, t mpi.Type, kind mpi.Op) error {
	return w.fail("Accumulate", w.issue(&op{data: d, target: target, offset: offset, elemType: t, op: kind}, anyEpoch))
}

// newGetAccumulate returns an accumulate that fetches the old content to result. NoOp has no data.
func (w *win) newGetAccumulate(d, result []byte, target, offset int, t mpi.Type, kind mpi.Op) *op {
	if kind == mpi.NoOp && !w.c.Defects.NoOpWrites {
		d = nil
	}
	return &op{data: d, result: result, target: target, offset: offset, elemType: t, op: kind}
}

func (w *win) GetAccumulate(d, result []byte, target, offset int, t mpi.Type, kind mpi.Op) error {
	return w.fail("GetAccumulate", w.issue(w.newGetAccumulate(d, result, target, offset, t, kind), anyEpoch))
}

func (w *win) FetchAndOp(d, result []byte, target, offset int, t mpi.Type, kind mpi.Op) error {
	return w.fail("FetchAndOp", w.issue(w.newGetAccumulate(d, result, target, offset, t, kind), anyEpoch))
}

func (w *win) CompareAndSwap(d, compare, result []byte, target, offset int, t mpi.Type) error {
	o := &op{data: d, compare: compare, result: result, target: target, offset: offset, elemType: t, op: mpi.Replace}
	return w.fail("CompareAndSwap", w.issue(o, anyEpoch))
}

// request starts the operation of an MPI call such as Rput. The returned request is complete when
// the result, if there is one, has arrived and the origin buffers can be reused.
func (w *win) request(call string, o *op) (cases.Request, error) {
	if err := w.issue(o, lockEpoch); err != nil {
		return nil, w.fail(call, err)
	}
	r := &request{c: w.c, active: true, st: undefinedStatus}
	r.poll = func() bool {
		if o.done || w.c.Defects.RequestsEarly {
			return true
		}
		if o.hasResult() {
			return false
		}
		o.copyOrigin() // the request is complete: the origin buffer can be reused
		return true
	}
	return r, nil
}

func (w *win) Rput(d []byte, target, offset int) (cases.Request, error) {
	return w.request("Rput", &op{put: true, data: d, target: target, offset: offset})
}

func (w *win) Rget(d []byte, target, offset int) (cases.Request, error) {
	return w.request("Rget", &op{get: true, result: d, target: target, offset: offset})
}

func (w *win) Raccumulate(d []byte, target, offset int, t mpi.Type, kind mpi.Op) (cases.Request, error) {
	return w.request("Raccumulate", &op{data: d, target: target, offset: offset, elemType: t, op: kind})
}

func (w *win) RgetAccumulate(d, result []byte, target, offset int, t mpi.Type, kind mpi.Op) (cases.Request, error) {
	return w.request("RgetAccumulate", w.newGetAccumulate(d, result, target, offset, t, kind))
}
