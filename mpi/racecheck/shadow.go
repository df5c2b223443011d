package racecheck

import (
	"slices"

	"github.com/fabrictest/fabrictest/explore"
)

// MaxWatched is the size of the largest memory of a window in which stores of the program are found by
// their effect, in bytes.
const MaxWatched = 1 << 20

// noteWrite notes an access that may change the memory of windows.
func (c *Checker) noteWrite(a *access) {
	if !a.kind.writes() {
		return
	}
	for _, w := range c.ordered {
		for i := range w.ranks {
			if r := &w.ranks[i]; r.shadow != nil && w.covers(i, a.from, a.to) {
				r.writes = append(r.writes, a)
			}
		}
	}
}

// findStores compares the windows of a rank with their memory at its last event. What has changed, and no
// known access can have changed, was stored by the program in between, without an annotation.
func (c *Checker) findStores(p explore.Place) {
	for _, w := range c.ordered {
		if me, ok := w.rankOf[p.Rank]; ok {
			c.findStoresIn(&w.ranks[me], p)
		}
	}
}

func (c *Checker) findStoresIn(r *windowRank, p explore.Place) {
	if r.shadow == nil {
		return
	}
	var changes [][2]int
	if string(r.shadow) != string(r.mem) {
		changes = r.unexplained()
		copy(r.shadow, r.mem)
	}
	r.writes = slices.DeleteFunc(r.writes, func(a *access) bool { return a.done.at > 0 })
	last := c.ranks[p.Rank].last
	for _, change := range changes {
		c.tick(p.Rank) // what the last event released does not include the store
		place := explore.Place{Rank: p.Rank, Call: "store between " + last.Call + " and " + p.Call, File: p.File, Line: p.Line}
		c.touch(place, Store, r.mem[change[0]:change[1]], c.snapshot(p.Rank), false)
	}
}

// unexplained returns the ranges of memory that have changed and that no noted access writes.
func (r *windowRank) unexplained() (changes [][2]int) {
	base := addressOf(r.mem)
	isExplained := func(i int) bool {
		at := base + uintptr(i)
		return slices.ContainsFunc(r.writes, func(a *access) bool { return a.from <= at && at < a.to })
	}
	for i := range r.mem {
		if r.mem[i] == r.shadow[i] || isExplained(i) {
			continue
		}
		if n := len(changes); n > 0 && changes[n-1][1] == i {
			changes[n-1][1]++
		} else {
			changes = append(changes, [2]int{i, i + 1})
		}
	}
	return changes
}
