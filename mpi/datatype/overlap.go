package datatype

import (
	"cmp"
	"slices"
)

// sort sets what depends on the order of runs in memory.
func (t *Type) sort() {
	byOffset := func(a, b run) int { return cmp.Compare(a.offset, b.offset) }
	if t.sorted = t.runs; !slices.IsSortedFunc(t.runs, byOffset) {
		t.sorted = slices.Clone(t.runs)
		slices.SortFunc(t.sorted, byOffset)
	}
	for i, r := range t.sorted[min(1, len(t.sorted)):] {
		if before := t.sorted[i]; before.offset+before.n > r.offset {
			t.overlaps = true
		}
	}
}

// Overlap reports whether parts of the data of consecutive elements have the same memory.
func (t *Type) Overlap(count int) bool {
	if t.overlaps || count < 2 || t.size == 0 {
		return t.overlaps && count > 0
	}
	extent, span := t.Extent(), t.data.end-t.data.low
	if extent < 0 {
		extent = -extent
	}
	if extent == 0 {
		return true
	}
	for k := 1; k < count && k*extent < span; k++ {
		if t.overlapsAt(k * extent) {
			return true
		}
	}
	return false
}

// overlapsAt reports whether the data of two elements at a distance overlaps. That of one does not.
func (t *Type) overlapsAt(distance int) bool {
	other := t.sorted
	for _, r := range t.sorted {
		for len(other) > 0 && other[0].offset+distance+other[0].n <= r.offset {
			other = other[1:]
		}
		if len(other) > 0 && other[0].offset+distance < r.offset+r.n {
			return true
		}
	}
	return false
}
