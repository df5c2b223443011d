package mpi

import (
	"cmp"
	"fmt"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/window"
)

// start starts an operation on a target; for ProcNull it returns nil.
func (w *Win) start(name string, a window.Access) (*window.Operation, error) {
	if a.Rank == ProcNull {
		return nil, w.comm().raise(name, w.check())
	}
	return lockedResult(w.comm(), name, w.check(), func() (op *window.Operation, err error) {
		if err := cmp.Or(w.checkTarget(a.Rank), checkOverlap(a.Result, a.Origin, a.Compare)); err != nil {
			return nil, err
		}
		if t := w.c.rank.calls; t != nil {
			t.trace.accessed(&a)
			defer func() { t.accessed(w, a.Rank, err) }()
		}
		if w.c.rank.races != nil {
			return w.c.rank.races.startOp(w, a)
		}
		return w.engine.StartOp(a)
	})
}

// access starts an operation without a request.
func (w *Win) access(name string, a window.Access) error {
	_, err := w.start(name, a)
	return err
}

// request starts an operation with a request, which is complete at once for ProcNull.
func (w *Win) request(name string, a window.Access) (*Request, error) {
	a.Request = true
	op, err := w.start(name, a)
	if err != nil {
		return nil, err
	}
	r := &Request{c: w.c, call: name, active: true, kind: rmaRequest, op: op, status: emptyStatus}
	if op == nil {
		r.kind = completed
	}
	if t := w.c.rank.calls; t != nil {
		t.newRequest(r, false)
	}
	return r, nil
}

func putAccess(origin []byte, target, offset int) window.Access {
	return window.Access{Kind: window.PutOp, Rank: target, Offset: offset, Origin: origin}
}

func getAccess(into []byte, target, offset int) window.Access {
	return window.Access{Kind: window.GetOp, Rank: target, Offset: offset, Result: into}
}

func accumulateAccess(origin []byte, target, offset int, t Type, op Op) window.Access {
	return window.Access{Kind: window.AccumulateOp, Rank: target, Offset: offset, Origin: origin, Type: t, Op: op}
}

// fetching makes an accumulate fetch the old elements to result.
func fetching(a window.Access, result []byte) window.Access {
	a.Result = result
	if result == nil {
		a.Result = []byte{} // nil means that nothing is fetched
	}
	return a
}

// checkOverlap returns an error if the result buffer overlaps another buffer of the operation.
func checkOverlap(result []byte, others ...[]byte) error {
	for _, b := range others {
		if len(b) == 0 || len(result) == 0 {
			continue
		}
		if from, other := address(result), address(b); from < other+uintptr(len(b)) && other < from+uintptr(len(result)) {
			return fmt.Errorf("%w: the result buffer overlaps the origin or compare buffer", ErrRMAConflict)
		}
	}
	return nil
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Put writes origin to the window of rank target.
func (w *Win) Put(origin []byte, target, offset int) error {
	return w.access("Put", putAccess(origin, target, offset))
}

// Get reads from the window of rank target into origin.
func (w *Win) Get(origin []byte, target, offset int) error {
	return w.access("Get", getAccess(origin, target, offset))
}

// Accumulate combines origin with the elements at an offset of a rank's window. It is
// atomic per element, and ordered with other accumulates of this origin. The offset must
// be a multiple of the type size.
func (w *Win) Accumulate(origin []byte, target, offset int, t Type, op Op) error {
	return w.access("Accumulate", accumulateAccess(origin, target, offset, t, op))
}

// GetAccumulate combines origin with elements of a rank's window, as Accumulate does, and fetches
// the previous elements to result. With NoOp it only fetches, and origin may be nil.
func (w *Win) GetAccumulate(origin, result []byte, target, offset int, t Type, op Op) error {
	return w.access("GetAccumulate", fetching(accumulateAccess(origin, target, offset, t, op), result))
}

// FetchAndOp combines origin with one element of a window, and fetches the element's old value to
// result.
func (w *Win) FetchAndOp(origin, result []byte, target, offset int, t Type, op Op) error {
	if len(result) != t.Size() && t.Size() > 0 { // access reports a type without a size
		return w.comm().raise("FetchAndOp", fmt.Errorf("%w: the result has %d bytes, one %v has %d", ErrArg, len(result), t, t.Size()))
	}
	return w.access("FetchAndOp", fetching(accumulateAccess(origin, target, offset, t, op), result))
}

// CompareAndSwap replaces the element at an offset by origin if it is bitwise equal to
// compare, and fetches the previous element to result.
func (w *Win) CompareAndSwap(origin, compare, result []byte, target, offset int, t Type) error {
	return w.access("CompareAndSwap", window.Access{
		Kind: window.CompareAndSwapOp, Rank: target, Offset: offset, Origin: origin, Compare: compare, Result: result, Type: t,
	})
}

// Rput writes origin to a rank's window, and returns a request. It needs a lock epoch.
func (w *Win) Rput(origin []byte, target, offset int) (*Request, error) {
	return w.request("Rput", putAccess(origin, target, offset))
}

// Rget reads from a rank's window into origin, and returns a request. It needs a lock epoch.
func (w *Win) Rget(origin []byte, target, offset int) (*Request, error) {
	return w.request("Rget", getAccess(origin, target, offset))
}

// Raccumulate combines origin with elements of a window, and returns a request, in a lock epoch.
func (w *Win) Raccumulate(origin []byte, target, offset int, t Type, op Op) (*Request, error) {
	return w.request("Raccumulate", accumulateAccess(origin, target, offset, t, op))
}

// RgetAccumulate combines origin with elements of a window, fetches the previous elements to
// result, and returns a request. It needs a lock epoch.
func (w *Win) RgetAccumulate(origin, result []byte, target, offset int, t Type, op Op) (*Request, error) {
	return w.request("RgetAccumulate", fetching(accumulateAccess(origin, target, offset, t, op), result))
}
