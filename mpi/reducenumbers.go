package mpi

import (
	"encoding/binary"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/window"
)

// number is an element type whose values the processor computes with.
type number interface {
	byte | int8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64
}

// reduce is window.Reduce, with faster loops where there are some.
func reduce(into, from []byte, t Type, o Op) {
	if !reduceNumbers(into, from, t, o) {
		window.Reduce(into, from, t, o)
	}
}

// reduceNumbers is reduce for sums, products, minima and maxima of aligned numbers, with a loop for each
// type and operation. It returns false, and does nothing, for others.
func reduceNumbers(into, from []byte, t Type, o Op) bool {
	switch t {
	case Byte:
		return reduceSlice[byte](into, from, o)
	case Int8:
		return reduceSlice[int8](into, from, o)
	case Int16:
		return reduceSlice[int16](into, from, o)
	case Uint16:
		return reduceSlice[uint16](into, from, o)
	case Int32:
		return reduceSlice[int32](into, from, o)
	case Uint32:
		return reduceSlice[uint32](into, from, o)
	case Int64:
		return reduceSlice[int64](into, from, o)
	case Uint64:
		return reduceSlice[uint64](into, from, o)
	case Float32:
		return reduceSlice[float32](into, from, o)
	case Float64:
		return reduceSlice[float64](into, from, o)
	}
	return false
}

// reduceSlice is reduceNumbers for a type.
func reduceSlice[T number](into, from []byte, o Op) bool {
	a, aligned := numbers[T](into)
	b, bAligned := numbers[T](from)
	if !aligned || !bAligned {
		return false
	}
	a = a[:len(b)]
	switch o {
	case Sum:
		for i, v := range b {
			a[i] += v
		}
	case Prod:
		for i, v := range b {
			a[i] *= v
		}
	case Min:
		for i, v := range b {
			a[i] = min(a[i], v)
		}
	case Max:
		for i, v := range b {
			a[i] = max(a[i], v)
		}
	default:
		return false
	}
	return true
}

// isLittleEndian reports whether the processor has the byte order of elements.
var isLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// numbers returns the elements in b. ok is false if they are not aligned, or in another byte order than
// that of the processor.
func numbers[T number](b []byte) (all []T, ok bool) {
	var element T
	p := unsafe.SliceData(b)
	if !isLittleEndian || uintptr(unsafe.Pointer(p))%unsafe.Alignof(element) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(unsafe.Pointer(p)), len(b)/int(unsafe.Sizeof(element))), true
}
