// Package datatype has the derived datatypes of MPI: they say where the data of an element is in memory. A type
// is built from basic types by the constructors of the standard, and never changes. Pack and Unpack copy the
// data of elements to and from consecutive memory.
//
// The type map of the standard is flattened: a type is a list of runs of bytes in the order of its type map,
// in which runs that follow each other in memory are one.
package datatype

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/mpi/window"
)

// ErrArg is the class of all errors of this package.
var ErrArg = window.ErrArg

const (
	// maxRuns limits the memory of a type.
	maxRuns = 1 << 20
	// maxSpan limits the distance of data from the start of an element, and the size of a type.
	maxSpan = math.MaxInt >> 2
)

// Type is a datatype.
type Type struct {
	runs []run
	// sorted are the runs by offset.
	sorted []run
	size   int
	// data are the bounds of the data of an element, and marks those that Resized has set: bounds of types
	// that are built from this one count these only.
	data, marks bounds
	align       int // the largest of its basic types
	overlaps    bool
}

// run is a number of bytes at an offset from the start of an element.
type run struct{ offset, n int }

// bounds are the lowest offset and the highest, of nothing at first.
type bounds struct {
	isSet    bool
	low, end int
}

// include extends the bounds.
func (b *bounds) include(low, end int) {
	if !b.isSet {
		*b = bounds{true, low, end}
		return
	}
	b.low, b.end = min(b.low, low), max(b.end, end)
}

// Of returns the type of an element of reductions. It panics if there is no such type.
func Of(element window.Type) *Type {
	n := element.Size()
	if n == 0 {
		panic(fmt.Sprintf("no basic type: %v", element))
	}
	align := n
	switch element {
	case window.Int32Loc, window.Int64Loc, window.Float32Loc, window.Float64Loc:
		align = n / 2
	default:
	}
	t := &Type{runs: []run{{0, n}}, size: n, data: bounds{true, 0, n}, align: align}
	t.sort()
	return t
}

// Size returns the number of bytes of data of an element.
func (t *Type) Size() int { return t.size }

// LowerBound returns the offset of the first byte of an element, from which its extent counts.
func (t *Type) LowerBound() int {
	if t.marks.isSet {
		return t.marks.low
	}
	return t.data.low
}

// Extent returns the distance between consecutive elements. Unless Resized has set it, it is a multiple of the
// alignment of the basic types.
func (t *Type) Extent() int {
	if t.marks.isSet {
		return t.marks.end - t.marks.low
	}
	n := t.data.end - t.data.low
	if rest := n % max(t.align, 1); rest > 0 {
		n += t.align - rest
	}
	return n
}

// TrueBounds returns the offsets of the first byte of data of an element, and of the end of its data.
func (t *Type) TrueBounds() (low, end int) { return t.data.low, t.data.end }

// Run returns the offset and the number of bytes of consecutive elements whose data is one run of bytes in
// order; ok is false for others.
func (t *Type) Run(count int) (offset, n int, ok bool) {
	switch {
	case count == 0 || t.size == 0:
		return 0, 0, true
	case len(t.runs) > 1 || count > 1 && t.Extent() != t.size:
		return 0, 0, false
	}
	return t.runs[0].offset, t.size * count, true
}
