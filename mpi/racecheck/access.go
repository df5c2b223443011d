package racecheck

import (
	"reflect"

	"github.com/fabrictest/fabrictest/explore"
)

// Kind is the kind of an access to memory.
type Kind uint8

// The kinds. Load and Store are accesses by the rank that owns the memory: by its program, or as the
// buffer of an operation. The others are accesses of RMA operations to a window.
const (
	Load Kind = iota
	Store
	Get
	Put
	AtomicRead  // of an accumulate with MPI_NO_OP
	AtomicWrite // of other accumulates
)

// writes reports whether the access changes memory.
func (k Kind) writes() bool { return k == Store || k == Put || k == AtomicWrite }

// isAtomic reports whether the access is one of an accumulate.
func (k Kind) isAtomic() bool { return k == AtomicRead || k == AtomicWrite }

// Element is the element type of an accumulate.
type Element struct {
	Type uint8
	Size int
}

// access is an access to memory, from its start until it is complete.
type access struct {
	place    explore.Place
	kind     Kind
	isBuffer bool   // of an operation, not of the program
	mem      []byte // keeps the memory from being reused
	from, to uintptr
	element  Element    // of atomics
	start    clock      // the access is after everything in it
	done     epoch      // zero while the access is not complete
	sections []*section // locks held
}

// newAccess returns an access to mem, which is not empty, that starts now.
func newAccess(p explore.Place, kind Kind, mem []byte, start clock) *access {
	from := addressOf(mem)
	return &access{place: p, kind: kind, mem: mem, from: from, to: from + uintptr(len(mem)), start: start}
}

func addressOf(mem []byte) uintptr { return reflect.ValueOf(mem).Pointer() }

// overlaps reports whether two accesses have a byte in common.
func (a *access) overlaps(b *access) bool { return a.from < b.to && b.from < a.to }

// conflicts reports whether two overlapping accesses must be ordered: one of them writes, and they are
// not both accumulates of the same elements.
func (a *access) conflicts(b *access) bool {
	if !a.kind.writes() && !b.kind.writes() {
		return false
	}
	return !(a.kind.isAtomic() && b.kind.isAtomic() && a.sameElements(b))
}

// sameElements reports whether two atomic accesses have the same element type, and the same boundaries of
// elements: only then are they atomic with each other.
func (a *access) sameElements(b *access) bool {
	return a.element == b.element && a.element.Size > 0 && a.from%uintptr(a.element.Size) == b.from%uintptr(b.element.Size)
}

// orderedBefore reports whether a is complete before b starts: b starts after the epoch of a's completion,
// or locks keep them apart.
func (a *access) orderedBefore(b *access) bool {
	return a.done.isBefore(b.start) || a.excludes(b) != nil
}

// excludes returns the section of a lock that a was in and that excludes b; nil if there is none. The access
// a must be complete at the end of the section.
func (a *access) excludes(b *access) *section {
	for _, s := range a.sections {
		for _, t := range b.sections {
			if s != t && s.lock == t.lock && (s.exclusive || t.exclusive) && s.released != nil && a.done.isBefore(s.released) {
				return s
			}
		}
	}
	return nil
}

// supersedes reports whether every later access that races with old also races with a, so that old need
// not be kept. old is ordered before a.
func (a *access) supersedes(old *access) bool {
	if a.place.Rank != old.place.Rank || a.kind != old.kind || a.isBuffer != old.isBuffer || a.from > old.from || a.to < old.to || a.element != old.element {
		return false
	}
	if len(a.sections) > 0 || len(old.sections) > 0 {
		return len(a.sections) == 1 && len(old.sections) == 1 && a.sections[0] == old.sections[0] && old.done.isBefore(a.start)
	}
	return old.done.isBefore(a.start)
}
