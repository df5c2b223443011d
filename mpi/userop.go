package mpi

import "fmt"

// userOp is a reduction operation of the program.
type userOp struct {
	combine     func(in, inout []byte)
	size        int // of an element
	commutative bool
}

// firstUserOp is the first operation that CreateOp returns.
const firstUserOp Op = 128

// CreateOp creates an operation for the reductions and scans of this rank; accumulates refuse it. All
// ranks create their operations in the same order. combine sets each element of inout to in op inout;
// it must not call the runtime. An element has size bytes, whatever the Type in the call. The operation
// must be associative; if it is not commutative, elements are combined in the order of ranks.
func (w *World) CreateOp(combine func(in, inout []byte), size int, commutative bool) (Op, error) {
	err := w.check()
	k := w.rank
	switch {
	case err != nil:
	case combine == nil || size < 1:
		err = fmt.Errorf("%w: elements of %d bytes need a size and a function", ErrArg, size)
	case len(k.userOps) == int(^Op(0)-firstUserOp)+1:
		err = fmt.Errorf("%w: all %d operations are in use", ErrOp, len(k.userOps))
	}
	if err != nil {
		return 0, w.raise("CreateOp", err)
	}
	k.userOps = append(k.userOps, userOp{combine, size, commutative})
	return firstUserOp + Op(len(k.userOps)-1), nil
}

// userOp returns the operation of the program with a number; nil if there is none.
func (k *rank) userOp(op Op) *userOp {
	if op < firstUserOp || int(op-firstUserOp) >= len(k.userOps) {
		return nil
	}
	return &k.userOps[op-firstUserOp]
}
