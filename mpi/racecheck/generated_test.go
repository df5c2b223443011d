package racecheck_test

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
)

// mode is a way in which the two accesses of a generated program are synchronised.
type mode struct {
	name string
	// program makes the first access by calling first, the second by calling second.
	program func(r rank, win *mpi.Win, first, second func())
	// orders reports whether the first access is complete before the second one starts.
	orders func(first kind) bool
}

func always(kind) bool { return true }
func never(kind) bool  { return false }

// onceFetched is the order by completion at the origin only.
func onceFetched(first kind) bool { return slices.Contains(onlyReads, first) }

// generated is a set of programs: each pair of kinds in each mode.
type generated struct {
	category       string
	ranks, target  int
	first, second  int // ranks
	kinds, seconds []kind
	symmetric      bool // the order of two kinds does not matter
	local          bool // both accesses are to one buffer of the rank; else to the window of target
	conflict       func(a, b kind) bool
	modes          []mode
}

// pair is the kinds of the two accesses of a program.
type pair struct{ first, second kind }

// pairs returns all pairs of kinds.
func (g *generated) pairs() (all []pair) {
	for i, a := range g.kinds {
		seconds := g.seconds
		if g.symmetric {
			seconds = g.kinds[i:]
		}
		for _, b := range seconds {
			all = append(all, pair{a, b})
		}
	}
	return all
}

// run runs the program with two kinds of accesses in a mode.
func (g *generated) run(r rank, p pair, m *mode) {
	win, buf := r.window(16), buffer(8)
	do := func(by int, k kind, offset int) func() {
		return func() {
			switch {
			case r.Rank() != by:
			case g.local: // the accesses to the window do not overlap
				r.access(win, k, g.target, offset, buf)
			case k.isRMA():
				r.access(win, k, g.target, 0, buffer(8))
			default:
				r.access(win, k, g.target, 0, win.Memory()[:8])
			}
		}
	}
	m.program(r, win, do(g.first, p.first, 0), do(g.second, p.second, 8))
	r.do(r.Barrier())
}

// lines returns the lines that race.
func (g *generated) lines(p pair, m *mode) [][2]int {
	if !g.conflict(p.first, p.second) || m.orders(p.first) {
		return nil
	}
	return [][2]int{{p.first.line(), p.second.line()}}
}

var operations = []kind{put, get, accumulate, getAccumulate, noOp, fetchAndOp, compareAndSwap}

func windowConflict(a, b kind) bool { return windowConflicts[a][b] }

var allGenerated = []generated{
	{
		category: "pairs: local buffer", ranks: 2, target: 1, local: true, conflict: bufferConflict,
		kinds:   []kind{put, get, accumulate, getAccumulate, noOp, fetchAndOp, compareAndSwap, getAccumulateInto, fetchAndOpInto, compareFrom, compareAndSwapInto},
		seconds: []kind{load, store, sendFrom, put, get},
		modes:   localModes,
	},
	{
		category: "pairs: origin and target", ranks: 2, second: 1, target: 1, conflict: windowConflict,
		kinds: operations, seconds: []kind{load, store, sendFrom, receiveInto}, modes: targetModes,
	},
	{
		category: "pairs: two origins", ranks: 3, second: 2, target: 1, conflict: windowConflict,
		kinds: operations, symmetric: true, modes: originsModes,
	},
	{
		category: "pairs: same origin", ranks: 2, target: 1, conflict: windowConflict,
		kinds: operations, seconds: operations, modes: sameOriginModes,
	},
}

// The verdict on each generated program is that of the rules. Those of one mode share a simulation: barriers
// separate them, and each has a window and buffers of its own.
func testGenerated(t *testing.T) {
	for i := range allGenerated {
		g := &allGenerated[i]
		for k := range g.modes {
			m := &g.modes[k]
			c := racecheck.New(g.ranks)
			observe(t, c, func(r rank) {
				for _, p := range g.pairs() {
					g.run(r, p, m)
					if r.Rank() == 0 {
						v, text := judge(c.Take(), g.lines(p, m))
						count(t, g.category, p.first.String()+", "+p.second.String()+", "+m.name, v, text)
					}
					r.do(r.Barrier())
				}
			})
		}
	}
}
