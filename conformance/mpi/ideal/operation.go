package ideal

import (
	"bytes"
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// op is an operation on a rank's window.
type op struct {
	w          *world
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

// keep copies the origin buffers that the operation still needs.
func (o *op) keep() {
	o.data, o.compare = bytes.Clone(o.data), bytes.Clone(o.compare)
}

// size returns the number of bytes of the window that it accesses.
func (o *op) size() int {
	if o.data == nil || o.get {
		return len(o.result)
	}
	return len(o.data)
}

// try applies the operation if its epoch allows it now.
func (o *op) try() bool {
	if !o.ready() || !o.w.canReceive(o.win.c.g.ranks[o.target]) {
		return false
	}
	defects := o.w.defects
	if !o.put && !o.get && !defects.AccumulatesUnordered {
		first := slices.IndexFunc(o.w.ops, func(x *op) bool {
			return x.win == o.win && x.target == o.target && !x.put && !x.get
		})
		if o.w.ops[first] != o {
			return false
		}
	}
	mem := o.win.all.mem[o.target]
	if !o.put && !o.get && defects.AccumulatesRace && o.half == nil {
		o.half = bytes.Clone(mem)
		return true
	}
	if defects.NeighboursRace && o.t.Size() < 8 && !o.put && !o.get {
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
		o.w.ops = slices.DeleteFunc(o.w.ops, func(x *op) bool { return x == o })
	}
	return true
}

// apply applies the operation, and reports whether it is finished.
func (o *op) apply(mem []byte) bool {
	defects := o.w.defects
	at := mem[o.at : o.at+o.size()]
	switch {
	case defects.SelfPutsLost && o.origin == o.target && o.put:
	case defects.PutsCut && o.put && len(o.data) > 1:
		copy(at, o.data[:len(o.data)-1])
	case defects.PutsCutLarge && o.put && len(o.data) > 65536:
		copy(at, o.data[:65536])
	case defects.PutsOff && o.put && o.at+o.size() < len(mem):
		copy(mem[o.at+1:], o.data)
	case o.put:
		copy(at, o.data)
	case o.get && defects.GetsNothing:
	case o.get:
		n := copy(o.result, at)
		if defects.GetsCut && n > 1 {
			o.result[n-1] = 0
		}
	default:
		return o.combine(at)
	}
	return true
}

// combine applies an accumulate or a compare-and-swap, and reports whether it is finished.
func (o *op) combine(at []byte) bool {
	defects := o.w.defects
	old := bytes.Clone(at)
	if o.half != nil {
		if defects.AccumulatesRace {
			copy(at, o.half[o.at:])
			old = bytes.Clone(at)
		}
	}
	if defects.ElementsTorn && o.op == mpi.Replace && o.half == nil {
		for i := 0; i+8 <= len(at); i += 8 {
			copy(at[i:i+4], o.data[i:])
		}
		o.half = old
		return false
	}
	kind := o.op
	switch {
	case o.compare != nil:
		if bytes.Equal(at, o.compare) != defects.SwapsUnequal && !defects.NeverSwaps || defects.AlwaysSwaps {
			copy(at, o.data)
		}
	case defects.AccumulatesReplace && kind != mpi.NoOp:
		copy(at, o.data)
	case defects.ReducesBySum && kind != mpi.NoOp && kind != mpi.Replace:
		combine(at, o.data, o.t, mpi.Sum, defects)
	case defects.NoOpWrites && kind == mpi.NoOp && o.data != nil:
		copy(at, o.data)
	case kind != mpi.NoOp:
		combine(at, o.data, o.t, kind, defects)
	}
	if o.result != nil {
		if defects.FetchesNew {
			copy(o.result, at)
		} else {
			copy(o.result, old)
		}
	}
	return true
}

// epoch returns a function that reports when an operation on a target can be applied, or an
// error if there is no epoch that allows it.
func (w *win) epoch(target int, locked bool) (func() bool, error) {
	defects := w.c.p.w.defects
	if c := w.held[target]; c != nil {
		return func() bool { return c.granted }, nil
	}
	switch {
	case locked && !defects.EpochsUnchecked:
		return nil, mpi.ErrRMASync
	case slices.Contains(w.access, target):
		n := w.starts[target]
		return func() bool { return w.posted(target, n) }, nil
	case w.open && w.access == nil:
		n := w.all.fences[w.c.rank]
		return func() bool { return w.all.fences[target] >= n || defects.FenceAlone }, nil
	case defects.EpochsUnchecked:
		return func() bool { return true }, nil
	}
	return nil, mpi.ErrRMASync
}

// issue starts an operation, or returns why it is invalid.
func (w *win) issue(o *op, locked bool) error {
	if err := w.usable(); err != nil {
		return err
	}
	defects := w.c.p.w.defects
	if o.target == mpi.ProcNull && !defects.NullRefused {
		o.done = true
		return nil
	}
	if err := w.badTarget(o.target); err != nil || o.target < 0 || o.target >= w.c.Size() {
		o.done = true
		return err
	}
	if err := w.badOperation(o); err != nil {
		return err
	}
	size := len(w.all.mem[o.target])
	if o.at < 0 || o.at+o.size() > size {
		if defects.RangeErrorWrites && o.put && o.at >= 0 && o.at < size {
			copy(w.all.mem[o.target][o.at:], o.data)
		}
		if defects.RangesUnchecked {
			o.done = true
			return nil
		}
		return mpi.ErrRMARange
	}
	ready, err := w.epoch(o.target, locked)
	if err != nil {
		return err
	}
	if defects.WindowRanksOfWorld {
		o.target = min(w.c.rank, len(w.c.g.ranks)-1)
	}
	o.w, o.win, o.origin, o.ready = w.c.p.w, w, w.c.rank, ready
	w.ops = append(w.ops, o)
	o.w.ops = append(o.w.ops, o)
	return nil
}

// badOperation returns the error of an invalid type, operation or operand.
func (w *win) badOperation(o *op) error {
	switch {
	case o.put || o.get || w.c.p.w.defects.ReductionsUnchecked:
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

// operand returns the origin data of a fetching operation; none for NoOp.
func operand(d []byte, kind mpi.Op) []byte {
	if kind == mpi.NoOp {
		return nil
	}
	return d
}

func (w *win) getAccumulate(d, result []byte, target, at int, t mpi.Type, kind mpi.Op) *op {
	if w.c.p.w.defects.NoOpWrites {
		return &op{data: d, result: result, target: target, at: at, t: t, op: kind}
	}
	return &op{data: operand(d, kind), result: result, target: target, at: at, t: t, op: kind}
}

func (w *win) GetAccumulate(d, result []byte, target, at int, t mpi.Type, kind mpi.Op) error {
	return w.fail("GetAccumulate", w.issue(w.getAccumulate(d, result, target, at, t, kind), false))
}

func (w *win) FetchAndOp(d, result []byte, target, at int, t mpi.Type, kind mpi.Op) error {
	return w.fail("FetchAndOp", w.issue(w.getAccumulate(d, result, target, at, t, kind), false))
}

func (w *win) CompareAndSwap(d, compare, result []byte, target, at int, t mpi.Type) error {
	return w.fail("CompareAndSwap", w.issue(&op{data: d, compare: compare, result: result, target: target, at: at, t: t, op: mpi.Replace}, false))
}

// request starts an operation with a request.
func (w *win) request(call string, o *op) (cases.Request, error) {
	if err := w.issue(o, true); err != nil {
		return nil, w.fail(call, err)
	}
	r := &request{p: w.c.p, c: w.c, active: true, st: undefinedStatus}
	defects := w.c.p.w.defects
	r.poll = func() bool {
		if o.done || defects.RequestsEarly {
			return true
		}
		if o.hasResult() {
			return false
		}
		o.keep() // the request is complete: the origin buffer can be reused
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
