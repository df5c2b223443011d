package datatype

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi/window"
)

// typeMap is a type as the standard defines it: a list of basic types at displacements, and of markers of bounds.
type typeMap struct {
	entries []entry
	lb, ub  []int
}

type entry struct{ displacement, size, align int }

// place adds a copy of another type at a displacement.
func (m *typeMap) place(displacement int, old *typeMap) {
	for _, e := range old.entries {
		e.displacement += displacement
		m.entries = append(m.entries, e)
	}
	for _, at := range old.lb {
		m.lb = append(m.lb, at+displacement)
	}
	for _, at := range old.ub {
		m.ub = append(m.ub, at+displacement)
	}
}

// placeBlock adds n consecutive copies.
func (m *typeMap) placeBlock(displacement, n int, old *typeMap) {
	for i := range n {
		m.place(displacement+i*old.extent(), old)
	}
}

func (m *typeMap) size() (n int) {
	for _, e := range m.entries {
		n += e.size
	}
	return n
}

// trueBounds returns the bounds of data.
func (m *typeMap) trueBounds() (low, end int) {
	for i, e := range m.entries {
		if i == 0 {
			low, end = e.displacement, e.displacement+e.size
		}
		low, end = min(low, e.displacement), max(end, e.displacement+e.size)
	}
	return low, end
}

// lowerBound and extent are the formulas of MPI-3.1 §4.1.6.
func (m *typeMap) lowerBound() int {
	if len(m.lb) > 0 {
		return slices.Min(m.lb)
	}
	low, _ := m.trueBounds()
	return low
}

func (m *typeMap) extent() int {
	if len(m.ub) > 0 {
		return slices.Max(m.ub) - m.lowerBound()
	}
	_, end := m.trueBounds()
	n, align := end-m.lowerBound(), 1
	for _, e := range m.entries {
		align = max(align, e.align)
	}
	for n%align != 0 {
		n++
	}
	return n
}

// bytes returns the offsets of all bytes of count elements, in the order in which they are packed.
func (m *typeMap) bytes(count int) (all []int) {
	for i := range count {
		for _, e := range m.entries {
			for k := range e.size {
				all = append(all, i*m.extent()+e.displacement+k)
			}
		}
	}
	return all
}

// source returns numbers from 0 to below n, at random or from the input of a fuzzer.
type source func(n int) int

// between returns a number from low to high.
func (s source) between(low, high int) int { return low + s(high-low+1) }

// randomType builds a type in both ways, from types that are nested up to a depth.
func (s source) randomType(depth int) (*Type, *typeMap, error) {
	if depth == 0 || s(4) == 0 {
		return s.basicType()
	}
	var m typeMap
	if kind := s(7); kind >= 5 {
		return s.structure(depth, kind == 6)
	}
	old, oldMap, err := s.randomType(depth - 1)
	if err != nil {
		return nil, nil, err
	}
	var t *Type
	switch s(5) {
	case 0:
		n := s(4)
		t, err = Contiguous(n, old)
		m.placeBlock(0, n, oldMap)
	case 1, 2:
		count, length, stride, unit := s(4), s(3), s.between(-4, 6), oldMap.extent()
		if s(2) == 0 {
			t, err = Vector(count, length, stride, old)
		} else {
			stride, unit = s.between(-20, 40), 1
			t, err = Hvector(count, length, stride, old)
		}
		for i := range count {
			m.placeBlock(i*stride*unit, length, oldMap)
		}
	case 3:
		low, extent := s.between(-9, 9), s.between(-40, 60)
		t, err = Resized(old, low, extent)
		m = typeMap{oldMap.entries, []int{low}, []int{low + extent}}
	default:
		lengths, displacements, unit := s.list(0, 3), s.list(-5, 5), oldMap.extent()
		n := min(len(lengths), len(displacements))
		if s(2) == 0 {
			t, err = Indexed(lengths[:n], displacements[:n], old)
		} else {
			unit = 1
			t, err = Hindexed(lengths[:n], displacements[:n], old)
		}
		for i := range n {
			m.placeBlock(displacements[i]*unit, lengths[i], oldMap)
		}
	}
	return t, &m, err
}

// list returns up to three numbers.
func (s source) list(low, high int) (all []int) {
	for range s(4) {
		all = append(all, s.between(low, high))
	}
	return all
}

// basicType returns one of the basic types.
func (s source) basicType() (*Type, *typeMap, error) {
	basic := []struct {
		window.Type
		size, align int
	}{{window.Byte, 1, 1}, {window.Int16, 2, 2}, {window.Int32, 4, 4}, {window.Float64, 8, 8}, {window.Int32Loc, 8, 4}, {window.Float64Loc, 16, 8}}
	b := basic[s(len(basic))]
	return Of(b.Type), &typeMap{entries: []entry{{0, b.size, b.align}}}, nil
}

// structure returns a Struct. With inOrder its members follow each other, as those of a structure in C.
func (s source) structure(depth int, inOrder bool) (*Type, *typeMap, error) {
	var lengths, displacements []int
	var types []*Type
	var m typeMap
	next := 0
	for range s(4) {
		t, inner, err := s.randomType(depth - 1)
		if err != nil {
			return nil, nil, err
		}
		n, at := s(3), s.between(-20, 60)
		if inOrder {
			at = next - inner.lowerBound()
			next += n * inner.extent()
		}
		lengths, displacements, types = append(lengths, n), append(displacements, at), append(types, t)
		m.placeBlock(at, n, inner)
	}
	t, err := Struct(lengths, displacements, types)
	return t, &m, err
}
