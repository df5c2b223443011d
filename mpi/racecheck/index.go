package racecheck

import "slices"

// index finds accesses by address: it has a list for each page.
type index struct {
	pages   map[uintptr][]*access
	n       int // entries of all lists
	pruneAt int
	found   []*access
}

const (
	pageBits = 12
	// firstPrune is the number of entries at which those that all ranks know are removed first.
	firstPrune = 1 << 12
)

func newIndex() index { return index{pages: map[uintptr][]*access{}, pruneAt: firstPrune} }

// eachPage calls visit for the pages of an access.
func (a *access) eachPage(visit func(page uintptr)) {
	for page := a.from >> pageBits; page <= (a.to-1)>>pageBits; page++ {
		visit(page)
	}
}

// overlapping returns the accesses that overlap a, each once. The slice is valid until the next call.
func (x *index) overlapping(a *access) []*access {
	x.found = x.found[:0]
	a.eachPage(func(page uintptr) {
		for _, old := range x.pages[page] {
			// An access is found on the first page that both have.
			if old.overlaps(a) && page == max(old.from, a.from)>>pageBits {
				x.found = append(x.found, old)
			}
		}
	})
	return x.found
}

// add adds an access, in place of those that it supersedes.
func (x *index) add(a *access) {
	a.eachPage(func(page uintptr) {
		list := x.pages[page]
		before := len(list)
		list = slices.DeleteFunc(list, a.supersedes)
		x.pages[page] = append(list, a)
		x.n += len(x.pages[page]) - before
	})
}

// isFull reports whether prune should be called.
func (x *index) isFull() bool { return x.n >= x.pruneAt }

// prune removes the accesses that are complete before everything that can follow.
func (x *index) prune(known clock) {
	x.n = 0
	for page, list := range x.pages { //layers:ordered each page is pruned by itself
		list = slices.DeleteFunc(list, func(a *access) bool { return a.done.isBefore(known) })
		if len(list) == 0 {
			delete(x.pages, page)
			continue
		}
		x.pages[page] = list
		x.n += len(list)
	}
	x.pruneAt = max(firstPrune, 2*x.n)
}
