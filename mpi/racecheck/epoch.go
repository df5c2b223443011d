package racecheck

import (
	"slices"

	"github.com/fabrictest/fabrictest/explore"
)

// AllTargets stands for all ranks of a window.
const AllTargets = -1

// completeOps records that an origin has completed its operations on a target, or AllTargets: at the
// origin, and unless isLocal also at the target.
func (c *Checker) completeOps(r *windowRank, target int, isLocal bool) {
	at := epoch{r.world, c.ranks[r.world].clock[r.world]}
	for _, o := range r.open {
		if target != AllTargets && o.target != target {
			continue
		}
		o.completeAtOrigin(at)
		if !isLocal {
			o.completeAtTarget(at)
		}
	}
	if !isLocal {
		r.open = slices.DeleteFunc(r.open, func(o *Op) bool { return target == AllTargets || o.target == target })
	}
}

// originOf returns the window with an id, and the state of a rank there.
func (c *Checker) originOf(p explore.Place, id WindowID) (*window, *windowRank) {
	w := c.windows[id]
	return w, &w.ranks[w.rankOf[p.Rank]]
}

// Fence records a fence of a rank, whose operations are complete at their targets. One that can end an epoch
// orders all ranks: the caller then also records a collective operation with all edges.
func (c *Checker) Fence(p explore.Place, id WindowID, endsEpoch bool) {
	c.begin(p)
	_, r := c.originOf(p, id)
	if endsEpoch {
		c.completeOps(r, AllTargets, false)
	}
	// Ranks are at most one fence apart, or promise that there are no operations between two.
	const kept = 4
	r.fences++
	r.fenceClocks[r.fences] = c.snapshot(p.Rank)
	delete(r.fenceClocks, r.fences-kept)
}

// Flush records that a rank has completed its operations on a target, or on AllTargets; with isLocal only at
// the origin.
func (c *Checker) Flush(p explore.Place, id WindowID, target int, isLocal bool) {
	c.begin(p)
	_, r := c.originOf(p, id)
	c.completeOps(r, target, isLocal)
}

// Lock records that a rank holds the lock of a target, or has called LockAll.
func (c *Checker) Lock(p explore.Place, id WindowID, target int, exclusive bool) {
	c.begin(p)
	w, r := c.originOf(p, id)
	for i := range w.ranks {
		if i == target || target == AllTargets {
			r.sections[i] = &section{lock: lockID{w, i}, exclusive: exclusive}
		}
	}
}

// Unlock records that a rank has completed its operations on a target, or on AllTargets, and releases the lock.
func (c *Checker) Unlock(p explore.Place, id WindowID, target int) {
	c.begin(p)
	w, r := c.originOf(p, id)
	c.completeOps(r, target, false)
	released := c.snapshot(p.Rank)
	for i := range w.ranks {
		if s := r.sections[i]; s != nil && (i == target || target == AllTargets) {
			s.released = released
			delete(r.sections, i)
		}
	}
}

// exposures are the exposure epochs of a target for one origin.
type exposures struct {
	posts     []clock // by number; nil once the epoch is closed
	starts    int     // how many the origin has used
	completes [][]*Op // operations of the origin, by number
	completed []clock // of Complete, by number
	waits     int     // how many are closed
	queued    []queuedOp
}

// queuedOp is an operation that waits for the Post with a number.
type queuedOp struct {
	number int
	op     *Op
}

// unchecked is the number of an exposure that Start has not waited for.
const unchecked = -1

// exposed returns the exposure epochs of a target for an origin.
func (r *windowRank) exposed(origin int) *exposures {
	if r.exposures[origin] == nil {
		r.exposures[origin] = &exposures{}
	}
	return r.exposures[origin]
}

// Post records that a rank exposes its window to a group. Operations that have waited for that access it now.
func (c *Checker) Post(p explore.Place, id WindowID, group []int) {
	c.begin(p)
	_, r := c.originOf(p, id)
	posted := c.snapshot(p.Rank)
	for _, origin := range group {
		e := r.exposed(origin)
		number := len(e.posts)
		e.posts = append(e.posts, posted)
		e.queued = slices.DeleteFunc(e.queued, func(q queuedOp) bool {
			if q.number != number {
				return false
			}
			q.op.remote.start = q.op.remote.start.joined(posted)
			c.add(q.op.remote)
			return true
		})
	}
}

// StartEpoch records that a rank opens an access epoch to a group. Without a check it does not wait for a Post.
func (c *Checker) StartEpoch(p explore.Place, id WindowID, group []int, noCheck bool) {
	c.begin(p)
	w, r := c.originOf(p, id)
	me := w.rankOf[p.Rank]
	r.access = map[int]int{}
	for _, target := range group {
		e := w.ranks[target].exposed(me)
		r.access[target] = e.starts
		if noCheck {
			r.access[target] = unchecked
		}
		e.starts++
	}
}

// Complete records that a rank closes its access epoch: its operations are complete at the origin. The rank
// has waited for the Posts of the group.
func (c *Checker) Complete(p explore.Place, id WindowID, group []int) {
	c.begin(p)
	w, r := c.originOf(p, id)
	me := w.rankOf[p.Rank]
	c.completeOps(r, AllTargets, true)
	for _, target := range group {
		e := w.ranks[target].exposed(me)
		if number := r.access[target]; number != unchecked && number < len(e.posts) {
			c.ranks[p.Rank].clock.join(e.posts[number])
		}
	}
	completed := c.snapshot(p.Rank)
	for _, target := range group {
		e := w.ranks[target].exposed(me)
		var ops []*Op
		for _, o := range r.open {
			if o.target == target {
				ops = append(ops, o)
			}
		}
		e.completes, e.completed = append(e.completes, ops), append(e.completed, completed)
	}
	r.open, r.access = nil, nil
}

// WaitEpoch records that a rank closes its exposure epoch to a group, which has completed it.
func (c *Checker) WaitEpoch(p explore.Place, id WindowID, group []int) {
	c.begin(p)
	_, r := c.originOf(p, id)
	at := epoch{p.Rank, c.ranks[p.Rank].clock[p.Rank]}
	for _, origin := range group {
		e := r.exposed(origin)
		number := e.waits
		e.waits++
		if number >= len(e.completes) {
			continue // the origin was lost
		}
		c.ranks[p.Rank].clock.join(e.completed[number])
		for _, o := range e.completes[number] {
			o.completeAtTarget(at)
		}
		e.posts[number], e.completes[number], e.completed[number] = nil, nil, nil
	}
}
