package explore

import (
	"math/rand/v2"
	"slices"
)

// faultKind is the kind of choices that are rarely other than 0: a run with a fault at each chance
// tells little.
const faultKind = "fault"

// random picks uniformly in one of orders choices, and a fault in one of faults; else 0.
type random struct {
	rng            *rand.Rand
	orders, faults int
}

func (r *random) pick(_ int, kind string, n int, _ []uint32) int {
	switch {
	case kind == faultKind && r.rng.IntN(r.faults) == 0:
		return 1 + r.rng.IntN(n-1)
	case kind == faultKind || r.rng.IntN(r.orders) > 0:
		return 0
	}
	return r.rng.IntN(n)
}

// lowest is above the priorities of entities that were lowered.
const lowest = 1 << 32

// pct is a strategy of probabilistic concurrency testing.
type pct struct {
	random
	priorities map[uint32]uint64 // by entity
	changes    []int             // steps at which the next entity gets the lowest priority
}

func (p *pct) pick(step int, kind string, n int, ids []uint32) int {
	if ids == nil {
		return p.random.pick(step, kind, n, ids)
	}
	best := p.highest(ids)
	if i := slices.Index(p.changes, step); i >= 0 {
		p.priorities[ids[best]] = uint64(i)
		best = p.highest(ids)
	}
	return best
}

// highest returns the index of the entity with the highest priority.
func (p *pct) highest(ids []uint32) int {
	return highest(p.rng, p.priorities, ids)
}

// highest returns the index of the entity with the highest priority. New ones get a random priority.
func highest(rng *rand.Rand, priorities map[uint32]uint64, ids []uint32) (best int) {
	var top uint64
	for i, id := range ids {
		p, known := priorities[id]
		if !known {
			p = lowest + rng.Uint64N(1<<63)
			priorities[id] = p
		}
		if i == 0 || p > top {
			best, top = i, p
		}
	}
	return best
}

// pos is a strategy of partial-order sampling.
type pos struct {
	random
	priorities map[uint32]uint64 // of the next event of an entity
}

func (p *pos) pick(step int, kind string, n int, ids []uint32) int {
	if ids == nil {
		return p.random.pick(step, kind, n, ids)
	}
	i := highest(p.rng, p.priorities, ids)
	delete(p.priorities, ids[i])
	return i
}
