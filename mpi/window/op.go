package window

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Type is that of the elements of a reduction. In memory they are little-endian.
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
	types
)

var typeNames = [types]string{"byte", "int32", "uint32", "int64", "uint64", "float32", "float64"}

func (t Type) String() string {
	if t < types {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Size is how many bytes an element has; 0 of what is no type.
func (t Type) Size() int {
	switch t {
	case Byte:
		return 1
	case Int32, Uint32, Float32:
		return 4
	case Int64, Uint64, Float64:
		return 8
	}
	return 0
}

// Op is what a reduction does with two elements.
type Op uint8

// The operations. Replace and NoOp are for windows: what was there gives way, or
// stays.
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
	ops
)

var opNames = [ops]string{"sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor", "replace", "no-op"}

func (o Op) String() string {
	if o < ops {
		return opNames[o]
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// Fits reports whether there is such an operation on such a type: bits and truth are
// not those of floating-point numbers.
func (o Op) ValidFor(t Type) bool {
	if o >= ops || t >= types {
		return false
	}
	return !(o >= BAnd && o <= LXor && (t == Float32 || t == Float64))
}

// Reduce sets each element of into to what the operation makes of it and of the
// element of from: into = into op from. Both have as many bytes, a multiple of the
// type's size.
func Reduce(into, from []byte, t Type, o Op) {
	size := t.Size()
	for i := 0; i+size <= len(from); i += size {
		store(into[i:], size, combine(load(into[i:], size), load(from[i:], size), t, o))
	}
}

func load(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func store(b []byte, size int, v uint64) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

// combine is what an operation makes of what is there and what comes.
func combine(was, with uint64, t Type, o Op) uint64 {
	switch o {
	case Replace:
		return with
	case NoOp:
		return was
	case BAnd:
		return was & with
	case BOr:
		return was | with
	case BXor:
		return was ^ with
	case LAnd:
		return truth(was != 0 && with != 0)
	case LOr:
		return truth(was != 0 || with != 0)
	case LXor:
		return truth((was != 0) != (with != 0))
	}
	switch t {
	case Byte:
		return uint64(number(byte(was), byte(with), o))
	case Int32:
		return uint64(uint32(number(int32(uint32(was)), int32(uint32(with)), o)))
	case Uint32:
		return uint64(number(uint32(was), uint32(with), o))
	case Int64:
		return uint64(number(int64(was), int64(with), o))
	case Float32:
		return uint64(math.Float32bits(number(math.Float32frombits(uint32(was)), math.Float32frombits(uint32(with)), o)))
	case Float64:
		return math.Float64bits(number(math.Float64frombits(was), math.Float64frombits(with), o))
	}
	return number(was, with, o)
}

func truth(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

func number[T byte | int32 | uint32 | int64 | uint64 | float32 | float64](was, with T, o Op) T {
	switch o {
	case Sum:
		return was + with
	case Prod:
		return was * with
	case Min:
		return min(was, with)
	}
	return max(was, with)
}
