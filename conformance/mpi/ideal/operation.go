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
	target, at int
	put, get   bool // neither: an accumulate
	data       []byte
	compare    []byte
	result     []byte
	t          mpi.Type
	op         mpi.Op
	ready      func() bool
	half       []byte // with a defect, the result of the first half
	done       bool
}

// hasResult reports whether the operation returns a result.
func (o *op) hasResult() bool { return o.get || o.result != nil }

// copyOrigin copies the origin buffers that the operation still needs, so that the program can reuse them.
func (o *op) copyOrigin() {
	o.data, o.compare = bytes.Clone(o.data), bytes.Clone(o.compare)
}

// size returns the number of bytes of the window that the operation accesses.
func (o *op) size() int {
	if o.data == nil || o.get {
		return len(o.result)
	}
	return len(o.data)
}

// try applies the operation, or a step of it, if its epoch allows that now.
func (o *op) try() bool {
	if !o.ready() || !o.canReceive(o.win.c.g.ranks[o.target]) {
		return false
	}
	if !o.put && !o.get && !o.Defects.AccumulatesUnordered {
		first := slices.IndexFunc(o.ops, func(x *op) bool {
			return x.win == o.win && x.target == o.target && !x.put && !x.get
		})
		if o.ops[first] != o {
			return false
		}
	}
	mem := o.win.all.mem[o.target]
	if !o.put && !o.get && o.Defects.AccumulatesRace && o.half == nil {
		o.half = bytes.Clone(mem)
		return true
	}
	if o.Defects.NeighboursRace && o.t.Size() < 8 && !o.put && !o.get {
		word := o.at &^ 7
		if o.half == nil {
			o.half = bytes.Clone(mem)
			return true
		}
		copy(mem[word:min(word+8, o.at)], o.half[word:])
		copy(mem[min(o.at+o.size(), word+8):word+8], o.half[min(o.at+o.size(), word+8):])
	}
	if o.apply(mem) {
		o.done = true
		o.ops = slices.DeleteFunc(o.ops, func(x *op) bool { return x == o })
	}
	return true
}

// apply applies the operation, and reports whether it is finished.
func (o *op) apply(mem []byte) bool {
	at := mem[o.at : o.at+o.size()]
	switch {
	case o.Defects.SelfPutsLost && o.origin == o.target && o.put:
	case o.Defects.PutsCut && o.put && len(o.data) > 1:
		copy(at, o.data[:len(o.data)-1])
	case o.Defects.PutsCutLarge && o.put && len(o.data) > 65536:
		copy(at, o.data[:65536])
	case o.Defects.PutsOff && o.put && o.at+o.size() < len(mem):
		copy(mem[o.at+1:], o.data)
	case o.put:
		copy(at, o.data)
	case o.get && o.Defects.GetsNothing:
	case o.get:
		n := copy(o.result, at)
		if o.Defects.GetsCut && n > 1 {
			o.result[n-1] = 0
		}
	default:
		return o.combine(at)
	}
	return true
}

// combine applies an accumulate or a compare-and-swap, and reports whether it is finished.
func (o *op) combine(at []byte) bool {
	old := bytes.Clone(at)
	if o.half != nil && o.Defects.AccumulatesRace {
		copy(at, o.half[o.at:])
		old = bytes.Clone(at)
	}
	if o.Defects.ElementsTorn && o.op == mpi.Replace && o.half == nil {
		for i := 0; i+8 <= len(at); i += 8 {
			copy(at[i:i+4], o.data[i:])
		}
		o.half = old
		return false
	}
	kind := o.op
	switch {
	case o.compare != nil:
		if bytes.Equal(at, o.compare) != o.Defects.SwapsUnequal && !o.Defects.NeverSwaps || o.Defects.AlwaysSwaps {
			copy(at, o.data)
		}
	case o.Defects.AccumulatesReplace && kind != mpi.NoOp:
		copy(at, o.data)
	case o.Defects.ReducesBySum && kind != mpi.NoOp && kind != mpi.Replace:
		combine(at, o.data, o.t, mpi.Sum, &o.Defects)
	case o.Defects.NoOpWrites && kind == mpi.NoOp && o.data != nil:
		copy(at, o.data)
	case kind != mpi.NoOp:
		combine(at, o.data, o.t, kind, &o.Defects)
	}
	if o.result != nil {
		if o.Defects.FetchesNew {
			copy(o.result, at)
		} else {
			copy(o.result, old)
		}
	}
	return true
}

// epoch returns a function that reports when an operation on a target can be applied, or an
// error if there is no epoch that allows it, which must be that of a lock if locked.
func (w *win) epoch(target int, locked bool) (func() bool, error) {
	if c := w.held[target]; c != nil {
		return func() bool { return c.granted }, nil
	}
	switch {
	case locked && !w.c.Defects.EpochsUnchecked:
		return nil, mpi.ErrRMASync
	case slices.Contains(w.access, target):
		n := w.starts[target]
		return func() bool { return w.posted(target, n) }, nil
	case w.open && w.access == nil:
		n := w.all.fences[w.c.rank]
		return func() bool { return w.all.fences[target] >= n || w.c.Defects.FenceAlone }, nil
	case w.c.Defects.EpochsUnchecked:
		return func() bool { return true }, nil
	}
	return nil, mpi.ErrRMASync
}

// issue starts an operation, or returns why it is invalid. If locked, it needs an epoch of a lock.
func (w *win) issue(o *op, locked bool) error {
	if err := w.startCall(); err != nil {
		return err
	}
	if o.target == mpi.ProcNull && !w.c.Defects.NullRefused {
		o.done = true
		return nil
	}
	if err := w.checkTarget(o.target); err != nil || o.target < 0 || o.target >= w.c.Size() {
		o.done = true
		return err
	}
	if err := w.checkOperation(o); err != nil {
		return err
	}
	size := len(w.all.mem[o.target])
	if o.at < 0 || o.at+o.size() > size {
		if w.c.Defects.RangeErrorWrites && o.put && o.at >= 0 && o.at < size {
			copy(w.all.mem[o.target][o.at:], o.data)
		}
		if w.c.Defects.RangesUnchecked {
			o.done = true
			return nil
		}
		return mpi.ErrRMARange
	}
	ready, err := w.epoch(o.target, locked)
	if err != nil {
		return err
	}
	if w.c.Defects.WindowRanksOfWorld {
		o.target = min(w.c.rank, len(w.c.g.ranks)-1)
	}
	o.world, o.win, o.origin, o.ready = w.c.world, w, w.c.rank, ready
	w.ops = append(w.ops, o)
	o.ops = append(o.ops, o)
	return nil
}

// checkOperation returns an error for an invalid type, operation or operand.
func (w *win) checkOperation(o *op) error {
	switch {
	case o.put || o.get || w.c.Defects.ReductionsUnchecked:
		return nil
	case int(o.t) > int(mpi.Float64):
		return mpi.ErrType
	case int(o.op) > int(mpi.NoOp), bitwise(o.op) && floating(o.t):
		return mpi.ErrOp
	case o.size()%o.t.Size() != 0, o.at%o.t.Size() != 0, o.result != nil && o.data != nil && len(o.result) != len(o.data):
		return mpi.ErrArg
	}
	return nil
}

func (w *win) Put(d []byte, target, at int) error {
	return w.fail("Put", w.issue(&op{put: true, data: d, target: target, at: at}, false))
}

func (w *win) Get(d []byte, target, at int) error {
	return w.fail("Get", w.issue(&op{get: true, result: d, target: target, at: at}, false))
}

func (w *win) Accumulate(d []byte, target, at int, t mpi.Type, kind mpi.Op) error {
	return w.fail("Accumulate", w.issue(&op{data: d, target: target, at: at, t: t, op: kind}, false))
}

// getAccumulate returns an operation that fetches. NoOp has no origin data.
func (w *win) getAccumulate(d, result []byte, target, at int, t mpi.Type, kind mpi.Op) *op {
	if kind == mpi.NoOp && !w.c.Defects.NoOpWrites {
		d = nil
	}
	return &op{data: d, result: result, target: target, at: at, t: t, op: kind}
}

func (w *win) GetAccumulate(d, result []byte, target, at int, t mpi.Type, kind mpi.Op) error {
	return w.fail("GetAccumulate", w.issue(w.getAccumulate(d, result, target, at, t, kind), false))
}

func (w *win) FetchAndOp(d, result []byte, target, at int, t mpi.Type, kind mpi.Op) error {
	return w.fail("FetchAndOp", w.issue(w.getAccumulate(d, result, target, at, t, kind), false))
}

func (w *win) CompareAndSwap(d, compare, result []byte, target, at int, t mpi.Type) error {
	o := &op{data: d, compare: compare, result: result, target: target, at: at, t: t, op: mpi.Replace}
	return w.fail("CompareAndSwap", w.issue(o, false))
}

// request starts an operation with a request.
func (w *win) request(call string, o *op) (cases.Request, error) {
	if err := w.issue(o, true); err != nil {
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

func (w *win) Rput(d []byte, target, at int) (cases.Request, error) {
	return w.request("Rput", &op{put: true, data: d, target: target, at: at})
}

func (w *win) Rget(d []byte, target, at int) (cases.Request, error) {
	return w.request("Rget", &op{get: true, result: d, target: target, at: at})
}

func (w *win) Raccumulate(d []byte, target, at int, t mpi.Type, kind mpi.Op) (cases.Request, error) {
	return w.request("Raccumulate", &op{data: d, target: target, at: at, t: t, op: kind})
}

func (w *win) RgetAccumulate(d, result []byte, target, at int, t mpi.Type, kind mpi.Op) (cases.Request, error) {
	return w.request("RgetAccumulate", w.getAccumulate(d, result, target, at, t, kind))
}
