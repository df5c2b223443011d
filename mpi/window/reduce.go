package window

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Type is the element type of a reduction. Elements are little-endian in memory.
type Type uint8

// The types.
const (
	Byte Type = iota
	Int32
	Uint32
	Int64
	Uint64
	Float32
	Float64
	Int8
	Int16
	Uint16
	Float16
	BFloat16
	// Pairs of a value and an index of the same size, for MinLoc and MaxLoc. Only collectives have them.
	Int32Loc
	Int64Loc
	Float32Loc // the index is an int32
	Float64Loc // the index is an int64
	numTypes
)

var typeNames = [numTypes]string{
	"byte", "int32", "uint32", "int64", "uint64", "float32", "float64", "int8", "int16", "uint16", "float16", "bfloat16",
	"int32-loc", "int64-loc", "float32-loc", "float64-loc",
}

var typeSizes = [numTypes]int{1, 4, 4, 8, 8, 4, 8, 1, 2, 2, 2, 2, 8, 16, 8, 16}

// String returns the name of the type, or "type" and its number if it is unknown.
func (t Type) String() string {
	if t < numTypes {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Size is the size of an element in bytes; 0 for an unknown type.
func (t Type) Size() int {
	if t < numTypes {
		return typeSizes[t]
	}
	return 0
}

// isFloat and isLoc report whether elements are floating-point numbers, or pairs for MinLoc and MaxLoc.
func (t Type) isFloat() bool { return t == Float32 || t == Float64 || t == Float16 || t == BFloat16 }
func (t Type) isLoc() bool   { return t >= Int32Loc && t <= Float64Loc }

// Op is a reduction operation.
type Op uint8

// The operations. Replace and NoOp are for accumulates only.
const (
	Sum Op = iota
	Prod
	Min
	Max
	BAnd
	BOr
	BXor
	LAnd
	LOr
	LXor
	Replace
	NoOp
	// MinLoc and MaxLoc are the pair with the smallest or largest value, and of equal ones that with the
	// smallest index.
	MinLoc
	MaxLoc
	numOps
)

var opNames = [numOps]string{"sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor", "replace", "no-op", "minloc", "maxloc"}

// String returns the name of the operation, or "op" and its number if it is unknown.
func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// ValidFor reports whether the operation is defined for a type: bitwise and logical operations are not
// for floating-point types, and pairs have MinLoc and MaxLoc only.
func (o Op) ValidFor(t Type) bool {
	if o >= numOps || t >= numTypes {
		return false
	}
	isBitwiseOrLogical, isLocOp := o >= BAnd && o <= LXor, o == MinLoc || o == MaxLoc
	return isLocOp == t.isLoc() && !(isBitwiseOrLogical && t.isFloat())
}

// validForAccumulate reports whether accumulates have the operation for a type.
func (o Op) validForAccumulate(t Type) bool { return o.ValidFor(t) && !t.isLoc() }

// Reduce sets each element of into to (into op from). Both slices have the same size, a
// multiple of the element size.
func Reduce(into, from []byte, t Type, o Op) {
	size := t.Size()
	if t.isLoc() {
		reduceLoc(into, from, t, o)
		return
	}
	for i := 0; i+size <= len(from); i += size {
		store(into[i:], size, combine(load(into[i:], size), load(from[i:], size), t, o))
	}
}

// load returns an element of 1, 2, 4 or 8 bytes.
func load(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// store writes an element of 1, 2, 4 or 8 bytes.
func store(b []byte, size int, v uint64) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

// combine returns (a op b). The arguments and the result are the bits of elements.
func combine(a, b uint64, t Type, o Op) uint64 {
	switch o {
	case Replace:
		return b
	case NoOp:
		return a
	case BAnd:
		return a & b
	case BOr:
		return a | b
	case BXor:
		return a ^ b
	case LAnd:
		return boolToUint(a != 0 && b != 0)
	case LOr:
		return boolToUint(a != 0 || b != 0)
	case LXor:
		return boolToUint((a != 0) != (b != 0))
	}
	switch t {
	case Byte:
		return uint64(arithmetic(byte(a), byte(b), o))
	case Int8:
		return uint64(byte(arithmetic(int8(a), int8(b), o)))
	case Int16:
		return uint64(uint16(arithmetic(int16(a), int16(b), o)))
	case Uint16:
		return uint64(arithmetic(uint16(a), uint16(b), o))
	case Float16:
		return uint64(toFloat16(arithmetic(fromFloat16(uint16(a)), fromFloat16(uint16(b)), o)))
	case BFloat16:
		return uint64(toBFloat16(arithmetic(fromBFloat16(uint16(a)), fromBFloat16(uint16(b)), o)))
	case Int32:
		return uint64(uint32(arithmetic(int32(uint32(a)), int32(uint32(b)), o)))
	case Uint32:
		return uint64(arithmetic(uint32(a), uint32(b), o))
	case Int64:
		return uint64(arithmetic(int64(a), int64(b), o))
	case Float32:
		return uint64(math.Float32bits(arithmetic(math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b)), o)))
	case Float64:
		return math.Float64bits(arithmetic(math.Float64frombits(a), math.Float64frombits(b), o))
	}
	return arithmetic(a, b, o) // Uint64
}

// boolToUint returns the result of a logical operation as a number, 0 or 1.
func boolToUint(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// arithmetic returns the sum, product, minimum or maximum of a and b.
func arithmetic[T byte | int8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64](a, b T, o Op) T {
	switch o {
	case Sum:
		return a + b
	case Prod:
		return a * b
	case Min:
		return min(a, b)
	}
	return max(a, b)
}
