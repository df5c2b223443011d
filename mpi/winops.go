package mpi

import (
	"fmt"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/window"
)

// begin begins an operation on a target, unless that is nobody.
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

// request is that of an operation.
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

// Put writes to a rank's window.
func (w *Win) Put(origin []byte, target, at int) error {
	_, err := w.startOp("Put", target, func(e *window.Window) (*window.Operation, error) {
		return e.Put(origin, target, at, false)
	})
	return err
}

// Get reads from a rank's window.
func (w *Win) Get(origin []byte, target, at int) error {
	_, err := w.startOp("Get", target, func(e *window.Window) (*window.Operation, error) {
		return e.Get(origin, target, at, false)
	})
	return err
}

// Accumulate combines with what is in a rank's window, atomically element by
// element, in the order of the calls of each origin. The offset is a multiple of the
// type's size.
func (w *Win) Accumulate(origin []byte, target, at int, t Type, op Op) error {
	_, err := w.accumulate("Accumulate", origin, nil, target, at, t, op, false)
	return err
}

// GetAccumulate does so, and brings what was there before. With NoOp it only does
// that, and the origin may be nil.
func (w *Win) GetAccumulate(origin, result []byte, target, at int, t Type, op Op) error {
	_, err := w.accumulate("GetAccumulate", origin, nonNil(result), target, at, t, op, false)
	return err
}

// FetchAndOp does so with one element.
func (w *Win) FetchAndOp(origin, result []byte, target, at int, t Type, op Op) error {
	if len(result) != t.Size() && t.Size() > 0 {
		return w.comm().raise("FetchAndOp", fmt.Errorf("%w: the result has %d bytes, and one %v has %d", ErrArg, len(result), t, t.Size()))
	}
	_, err := w.accumulate("FetchAndOp", origin, nonNil(result), target, at, t, op, false)
	return err
}

func (w *Win) accumulate(name string, origin, result []byte, target, at int, t Type, op Op, request bool) (*window.Operation, error) {
	return w.startOp(name, target, func(e *window.Window) (*window.Operation, error) {
		if err := checkOverlap(result, origin); err != nil {
			return nil, err
		}
		return e.Accumulate(origin, result, target, at, t, op, request)
	})
}

// apart says which of its buffers an operation would both read and write.
func checkOverlap(result []byte, others ...[]byte) error {
	for _, b := range others {
		if len(b) == 0 || len(result) == 0 {
			continue
		}
		if from, other := address(result), address(b); from < other+uintptr(len(b)) && other < from+uintptr(len(result)) {
			return fmt.Errorf("%w: the result shares memory with what is to be combined or compared", ErrRMAConflict)
		}
	}
	return nil
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// notNil is a buffer for a result, even if it is for nothing.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// CompareAndSwap puts an element in the place of one that is equal to another, bit
// by bit, and brings what was there before.
func (w *Win) CompareAndSwap(origin, compare, result []byte, target, at int, t Type) error {
	_, err := w.startOp("CompareAndSwap", target, func(e *window.Window) (*window.Operation, error) {
		if err := checkOverlap(result, origin, compare); err != nil {
			return nil, err
		}
		return e.CompareAndSwap(origin, compare, result, target, at, t)
	})
	return err
}

// Rput is Put with a request, in epochs of locks.
func (w *Win) Rput(origin []byte, target, at int) (*Request, error) {
	op, err := w.startOp("Rput", target, func(e *window.Window) (*window.Operation, error) {
		return e.Put(origin, target, at, true)
	})
	return w.request("Rput", op, err)
}

// Rget is Get with a request, in epochs of locks.
func (w *Win) Rget(origin []byte, target, at int) (*Request, error) {
	op, err := w.startOp("Rget", target, func(e *window.Window) (*window.Operation, error) {
		return e.Get(origin, target, at, true)
	})
	return w.request("Rget", op, err)
}

// Raccumulate is Accumulate with a request, in epochs of locks.
func (w *Win) Raccumulate(origin []byte, target, at int, t Type, op Op) (*Request, error) {
	o, err := w.accumulate("Raccumulate", origin, nil, target, at, t, op, true)
	return w.request("Raccumulate", o, err)
}

// RgetAccumulate is GetAccumulate with a request, in epochs of locks.
func (w *Win) RgetAccumulate(origin, result []byte, target, at int, t Type, op Op) (*Request, error) {
	o, err := w.accumulate("RgetAccumulate", origin, nonNil(result), target, at, t, op, true)
	return w.request("RgetAccumulate", o, err)
}
