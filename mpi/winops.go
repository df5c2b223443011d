package mpi

import (
	"fmt"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/window"
)

// startOp starts an operation on a target; for ProcNull it returns nil.
func (w *Win) startOp(name string, target int, do func(*window.Window) (*window.Operation, error)) (op *window.Operation, err error) {
	if target == ProcNull {
		return nil, w.comm().raise(name, w.check())
	}
	err = w.call(name, func(e *window.Window) error {
		if err := w.checkTarget(target); err != nil {
			return err
		}
		op, err = do(e)
		return err
	})
	return op, err
}

// request returns the request of an operation.
func (w *Win) request(name string, op *window.Operation, err error) (*Request, error) {
	if err != nil {
		return nil, err
	}
	r := &Request{c: w.c, call: name, active: true, kind: rmaRequest, op: op, status: emptyStatus}
	if op == nil {
		r.kind = completed
	}
	return r, nil
}

// Put writes to a rank's window at offset at.
func (w *Win) Put(origin []byte, target, at int) error {
	_, err := w.startOp("Put", target, func(e *window.Window) (*window.Operation, error) {
		return e.Put(origin, target, at, false)
	})
	return err
}

// Get reads from a rank's window at offset at.
func (w *Win) Get(origin []byte, target, at int) error {
	_, err := w.startOp("Get", target, func(e *window.Window) (*window.Operation, error) {
		return e.Get(origin, target, at, false)
	})
	return err
}

// Accumulate combines origin with the elements at offset at of a rank's window. It is
// atomic per element, and ordered with other accumulates of this origin. The offset must
// be a multiple of the type size.
func (w *Win) Accumulate(origin []byte, target, at int, t Type, op Op) error {
	_, err := w.accumulate("Accumulate", target, window.Update{Origin: origin, Offset: at, Type: t, Op: op}, false)
	return err
}

// GetAccumulate is Accumulate that also fetches the previous elements to result. With NoOp
// it only fetches, and origin may be nil.
func (w *Win) GetAccumulate(origin, result []byte, target, at int, t Type, op Op) error {
	_, err := w.accumulate("GetAccumulate", target, window.Update{Origin: origin, Result: nonNil(result), Offset: at, Type: t, Op: op}, false)
	return err
}

// FetchAndOp is GetAccumulate of one element.
func (w *Win) FetchAndOp(origin, result []byte, target, at int, t Type, op Op) error {
	if len(result) != t.Size() && t.Size() > 0 {
		return w.comm().raise("FetchAndOp", fmt.Errorf("%w: the result has %d bytes, one %v has %d", ErrArg, len(result), t, t.Size()))
	}
	_, err := w.accumulate("FetchAndOp", target, window.Update{Origin: origin, Result: nonNil(result), Offset: at, Type: t, Op: op}, false)
	return err
}

func (w *Win) accumulate(name string, target int, u window.Update, request bool) (*window.Operation, error) {
	return w.startOp(name, target, func(e *window.Window) (*window.Operation, error) {
		if err := checkOverlap(u.Result, u.Origin); err != nil {
			return nil, err
		}
		return e.Accumulate(target, u, request)
	})
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

// nonNil returns an empty buffer for nil, since a nil result means that nothing is
// fetched.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// CompareAndSwap replaces the element at offset at by origin if it is bitwise equal to
// compare, and fetches the previous element to result.
func (w *Win) CompareAndSwap(origin, compare, result []byte, target, at int, t Type) error {
	_, err := w.startOp("CompareAndSwap", target, func(e *window.Window) (*window.Operation, error) {
		if err := checkOverlap(result, origin, compare); err != nil {
			return nil, err
		}
		return e.CompareAndSwap(origin, compare, result, target, at, t)
	})
	return err
}

// Rput is Put with a request; it needs a lock epoch.
func (w *Win) Rput(origin []byte, target, at int) (*Request, error) {
	op, err := w.startOp("Rput", target, func(e *window.Window) (*window.Operation, error) {
		return e.Put(origin, target, at, true)
	})
	return w.request("Rput", op, err)
}

// Rget is Get with a request; it needs a lock epoch.
func (w *Win) Rget(origin []byte, target, at int) (*Request, error) {
	op, err := w.startOp("Rget", target, func(e *window.Window) (*window.Operation, error) {
		return e.Get(origin, target, at, true)
	})
	return w.request("Rget", op, err)
}

// Raccumulate is Accumulate with a request; it needs a lock epoch.
func (w *Win) Raccumulate(origin []byte, target, at int, t Type, op Op) (*Request, error) {
	o, err := w.accumulate("Raccumulate", target, window.Update{Origin: origin, Offset: at, Type: t, Op: op}, true)
	return w.request("Raccumulate", o, err)
}

// RgetAccumulate is GetAccumulate with a request; it needs a lock epoch.
func (w *Win) RgetAccumulate(origin, result []byte, target, at int, t Type, op Op) (*Request, error) {
	o, err := w.accumulate("RgetAccumulate", target, window.Update{Origin: origin, Result: nonNil(result), Offset: at, Type: t, Op: op}, true)
	return w.request("RgetAccumulate", o, err)
}
