package ideal

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// floating reports whether t is a floating-point type.
func floating(t mpi.Type) bool { return t == mpi.Float32 || t == mpi.Float64 }

// integersOnly reports whether op is a bitwise or a logical operation.
func integersOnly(op mpi.Op) bool {
	return slices.Contains([]mpi.Op{mpi.BAnd, mpi.BOr, mpi.BXor, mpi.LAnd, mpi.LOr, mpi.LXor}, op)
}

type addable interface {
	~uint8 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// combine computes into = into op with, for each element of type t. The lengths are equal. It does
// nothing for an invalid type, which the defect ReductionsUnchecked accepts and whose size is 0.
func combine(into, with []byte, t mpi.Type, op mpi.Op, defects *Defects) {
	if defects.TypesIgnored {
		t = mpi.Byte
	}
	le := binary.LittleEndian
	for i := 0; t.Size() > 0 && i+t.Size() <= len(into); i += t.Size() {
		a, b := into[i:], with[i:]
		switch t {
		case mpi.Byte:
			a[0] = combineIntegers(a[0], b[0], op)
		case mpi.Int32:
			le.PutUint32(a, uint32(combineIntegers(int32(le.Uint32(a)), int32(le.Uint32(b)), op)))
		case mpi.Uint32:
			le.PutUint32(a, combineIntegers(le.Uint32(a), le.Uint32(b), op))
		case mpi.Int64:
			le.PutUint64(a, uint64(combineIntegers(int64(le.Uint64(a)), int64(le.Uint64(b)), op)))
		case mpi.Uint64:
			le.PutUint64(a, combineIntegers(le.Uint64(a), le.Uint64(b), op))
		case mpi.Float32:
			x, y := math.Float32frombits(le.Uint32(a)), math.Float32frombits(le.Uint32(b))
			le.PutUint32(a, math.Float32bits(combineNumbers(x, y, op)))
		case mpi.Float64:
			x, y := math.Float64frombits(le.Uint64(a)), math.Float64frombits(le.Uint64(b))
			le.PutUint64(a, math.Float64bits(combineNumbers(x, y, op)))
		}
	}
}

// combineIntegers returns a op b, also for bitwise operations.
func combineIntegers[N uint8 | int32 | uint32 | int64 | uint64](a, b N, op mpi.Op) N {
	switch op {
	case mpi.BAnd:
		return a & b
	case mpi.BOr:
		return a | b
	case mpi.BXor:
		return a ^ b
	}
	return combineNumbers(a, b, op)
}

// combineNumbers returns a op b. NoOp returns a.
func combineNumbers[N addable](a, b N, op mpi.Op) N {
	number := func(condition bool) N {
		if condition {
			return 1
		}
		return 0
	}
	switch op {
	case mpi.Sum:
		return a + b
	case mpi.Prod:
		return a * b
	case mpi.Min:
		return min(a, b)
	case mpi.Max:
		return max(a, b)
	case mpi.LAnd:
		return number(a != 0 && b != 0)
	case mpi.LOr:
		return number(a != 0 || b != 0)
	case mpi.LXor:
		return number((a != 0) != (b != 0))
	case mpi.Replace:
		return b
	}
	return a
}
