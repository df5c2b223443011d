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
	return lockedResult(w.comm(), name, w.check(), func() (*window.Operation, error) {
		if err := cmp.Or(w.checkTarget(a.Rank), checkOverlap(a.Result, a.Origin, a.Compare)); err != nil {
			return nil, err
		}
		return w.w.StartOp(a)
	})
}

// access is start for an operation without a request.
func (w *Win) access(name string, a window.Access) error {
	_, err := w.start(name, a)
	return err
}

// request is start for an operation with a request.
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
	return r, nil
}

func putAccess(origin []byte, target, at int) window.Access {
	return window.Access{Kind: window.PutOp, Rank: target, Offset: at, Origin: origin}
}

func getAccess(into []byte, target, at int) window.Access {
	return window.Access{Kind: window.GetOp, Rank: target, Offset: at, Result: into}
}

func accumulateAccess(origin []byte, target, at int, t Type, op Op) window.Access {
	return window.Access{Kind: window.AccumulateOp, Rank: target, Offset: at, Origin: origin, Type: t, Op: op}
}

// fetching makes an accumulate fetch the old elements to result.
func fetching(a window.Access, result []byte) window.Access {
	a.Result = result
	if result == nil {
		a.Result = []byte{} // nil means that nothing is fetched
	}
	return a
}

// checkOverlap returns an error if the result buffer overlaps another buffer of the
// operation.
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

// Put writes to a rank's window at offset at.
func (w *Win) Put(origin []byte, target, at int) error {
	return w.access("Put", putAccess(origin, target, at))
}

// Get reads from a rank's window at offset at.
func (w *Win) Get(origin []byte, target, at int) error {
	return w.access("Get", getAccess(origin, target, at))
}

// Accumulate combines origin with the elements at offset at of a rank's window. It is
// atomic per element, and ordered with other accumulates of this origin. The offset must
// be a multiple of the type size.
func (w *Win) Accumulate(origin []byte, target, at int, t Type, op Op) error {
	return w.access("Accumulate", accumulateAccess(origin, target, at, t, op))
}

// GetAccumulate is Accumulate that also fetches the previous elements to result. With NoOp
// it only fetches, and origin may be nil.
func (w *Win) GetAccumulate(origin, result []byte, target, at int, t Type, op Op) error {
	return w.access("GetAccumulate", fetching(accumulateAccess(origin, target, at, t, op), result))
}

// FetchAndOp is GetAccumulate of one element.
func (w *Win) FetchAndOp(origin, result []byte, target, at int, t Type, op Op) error {
	if len(result) != t.Size() && t.Size() > 0 {
		return w.comm().raise("FetchAndOp", fmt.Errorf("%w: the result has %d bytes, one %v has %d", ErrArg, len(result), t, t.Size()))
	}
	return w.access("FetchAndOp", fetching(accumulateAccess(origin, target, at, t, op), result))
}

// CompareAndSwap replaces the element at offset at by origin if it is bitwise equal to
// compare, and fetches the previous element to result.
func (w *Win) CompareAndSwap(origin, compare, result []byte, target, at int, t Type) error {
	return w.access("CompareAndSwap", window.Access{
		Kind: window.CompareAndSwapOp, Rank: target, Offset: at, Origin: origin, Compare: compare, Result: result, Type: t,
	})
}

// Rput is Put with a request; it needs a lock epoch.
func (w *Win) Rput(origin []byte, target, at int) (*Request, error) {
	return w.request("Rput", putAccess(origin, target, at))
}

// Rget is Get with a request; it needs a lock epoch.
func (w *Win) Rget(origin []byte, target, at int) (*Request, error) {
	return w.request("Rget", getAccess(origin, target, at))
}

// Raccumulate is Accumulate with a request; it needs a lock epoch.
func (w *Win) Raccumulate(origin []byte, target, at int, t Type, op Op) (*Request, error) {
	return w.request("Raccumulate", accumulateAccess(origin, target, at, t, op))
}

// RgetAccumulate is GetAccumulate with a request; it needs a lock epoch.
func (w *Win) RgetAccumulate(origin, result []byte, target, at int, t Type, op Op) (*Request, error) {
	return w.request("RgetAccumulate", fetching(accumulateAccess(origin, target, at, t, op), result))
}
