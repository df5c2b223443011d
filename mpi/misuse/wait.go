package misuse

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/explore"
)

// Wait is what a blocked call waits for: all of its operations, or any of them.
type Wait struct {
	Place explore.Place
	Any   bool
	Ops   []*Op
}

// Sleep records that the rank waits. It returns false if the run must stop, because this rank can never
// continue.
func (r *Rank) Sleep(w *Wait, now time.Duration) (canContinue bool) {
	if r.wait != w {
		r.wait, r.since, r.polls = w, now, 0
	}
	c := r.c
	if now >= r.since+patience && now >= c.nextCheck && !c.o.OnlyWaits {
		c.nextCheck = now + patience/8
		c.findDeadlock(func(r *Rank) *Wait {
			if now < r.since+patience {
				return nil
			}
			return r.wait
		}, false)
	}
	return c.stop == nil
}

// Wake records that the rank has left the call in which it waited.
func (r *Rank) Wake() { r.wait = nil }

// Polled records an unsuccessful test of operations. It returns false if the rank and others poll for ever.
func (r *Rank) Polled(w *Wait) (canContinue bool) {
	c := r.c
	if r.pollCalls != c.calls {
		r.polls, r.pollCalls = 0, c.calls
	}
	r.polls++
	r.polled = w
	if r.polls%maxPolls == 0 && !c.o.OnlyWaits {
		c.findDeadlock(func(r *Rank) *Wait {
			if r.wait == nil && r.polls > maxPolls/2 && r.pollCalls == c.calls {
				return r.polled
			}
			return r.wait
		}, true)
	}
	return c.stop == nil
}

// analysis is a state of all ranks: which of them may still move.
type analysis struct {
	c      *Checker
	paired map[*Op]bool
	waits  []*Wait // by rank; nil: it is not blocked
	moves  []bool
	// sendsComplete says that standard sends may complete by themselves.
	sendsComplete bool
}

// analyse finds the ranks that can never move: those that are blocked, and that only these or ended
// ranks could wake. waits returns the wait of a rank, nil if it is not blocked.
func (c *Checker) analyse(waits func(*Rank) *Wait, sendsComplete bool) *analysis {
	c.refresh()
	a := &analysis{c: c, paired: c.pairs(), waits: make([]*Wait, len(c.ranks)), moves: make([]bool, len(c.ranks)), sendsComplete: sendsComplete}
	for i, r := range c.ranks {
		if r != nil && !r.ended {
			a.waits[i] = waits(r)
		}
	}
	for again := true; again; {
		again = false
		for i, r := range c.ranks {
			if a.moves[i] || r != nil && r.ended {
				continue
			}
			if w := a.waits[i]; w == nil || a.canEnd(w) {
				a.moves[i], again = true, true
			}
		}
	}
	return a
}

// isStuck reports whether a rank can never move.
func (a *analysis) isStuck(r *Rank) bool { return r != nil && !r.ended && !a.moves[r.rank] }

// canEnd reports whether a wait can end.
func (a *analysis) canEnd(w *Wait) bool {
	if len(w.Ops) == 0 {
		return true
	}
	ends := func(o *Op) bool { return len(a.needs(o)) == 0 || a.canHappen(o) }
	if w.Any {
		return slices.ContainsFunc(w.Ops, ends)
	}
	return !slices.ContainsFunc(w.Ops, func(o *Op) bool { return !ends(o) })
}

// canHappen reports whether the ranks that an operation needs may still act: any of them for a receive,
// else all.
func (a *analysis) canHappen(o *Op) bool {
	needs := a.needs(o)
	if o.kind == recvOp || o.kind == probeOp {
		return slices.ContainsFunc(needs, func(rank int) bool { return a.moves[rank] })
	}
	return !slices.ContainsFunc(needs, func(rank int) bool { return !a.moves[rank] })
}

// needs returns the world ranks that must act for an operation to complete; none if it completes by
// itself.
func (a *analysis) needs(o *Op) (ranks []int) {
	if o.done || a.paired[o] {
		return nil
	}
	switch o.kind {
	case sendOp:
		if a.sendsComplete && o.Mode != Synchronous || !a.c.isUnmatched(o) {
			return nil
		}
		return []int{o.Peer}
	case probeOp:
		if slices.ContainsFunc(a.c.sends[o.rank.rank], func(s *Op) bool { return !a.paired[s] && matches(o, s) }) {
			return nil
		}
		return o.sources()
	case recvOp:
		return o.sources()
	case collectiveOp:
		return o.missing()
	case lockOp:
		if l := o.win.locks[o.target]; l != nil {
			for _, held := range o.win.conflicting(l) {
				ranks = append(ranks, o.win.comm.members[held.rank])
			}
		}
	case postOp:
		for _, target := range o.group {
			if pair := [2]int{o.win.me, target}; o.win.posts[pair] < o.win.starts[pair] {
				ranks = append(ranks, o.win.comm.members[target])
			}
		}
	case completeOp:
		for _, origin := range o.group {
			if pair := [2]int{origin, o.win.me}; o.win.completes[pair] <= o.win.waits[pair] {
				ranks = append(ranks, o.win.comm.members[origin])
			}
		}
	}
	return ranks
}

// sources returns the world ranks from which a receive or a probe can get a message. Of a blocked rank
// itself none can come, unless it is named.
func (o *Op) sources() []int {
	if o.Peer != Any {
		return []int{o.Peer}
	}
	if all := remove(slices.Clone(o.Comm.members), o.rank.rank); len(all) > 0 {
		return all
	}
	return o.Comm.members
}

// describe says what an operation waits for.
func (o *Op) describe() string {
	peer, tag := fmt.Sprintf("rank %d", o.Peer), fmt.Sprintf("tag %d", o.Tag)
	if o.Peer == Any {
		peer = "any rank"
	}
	if o.Tag == Any {
		tag = "any tag"
	}
	switch o.kind {
	case sendOp:
		return fmt.Sprintf("the receive of %d bytes by %s with %s on %s", o.Bytes, peer, tag, o.Comm.name)
	case recvOp, probeOp:
		return fmt.Sprintf("a message from %s with %s on %s", peer, tag, o.Comm.name)
	case collectiveOp:
		return fmt.Sprintf("%s, call %d on %s", o.call.Name, o.index+1, o.Comm.name)
	case lockOp:
		return fmt.Sprintf("the lock of rank %d of %s", o.target, o.Comm.name)
	case postOp:
		return fmt.Sprintf("Post of the group %v of %s", o.group, o.Comm.name)
	case completeOp:
		return fmt.Sprintf("Complete of the group %v of %s", o.group, o.Comm.name)
	}
	return "an operation"
}

// open returns the operations of a wait that cannot complete.
func (a *analysis) open(w *Wait) (all []*Op) {
	for _, o := range w.Ops {
		if len(a.needs(o)) > 0 && !a.canHappen(o) {
			all = append(all, o)
		}
	}
	return all
}

// line describes the wait of a blocked rank in one line, with AND and OR of the operations.
func (a *analysis) line(r *Rank) string {
	w := a.waits[r.rank]
	open := a.open(w)
	parts := make([]string, 0, len(open))
	for _, o := range open {
		text := o.describe()
		if o.Place != w.Place && o.Place.Line > 0 {
			text += " (" + at(o.Place) + ")"
		}
		switch isReceive := o.kind == recvOp || o.kind == probeOp; {
		case isReceive && o.Peer == Any:
			text += ": one of ranks " + list(a.needs(o), " or ")
		case !isReceive && o.kind != sendOp: // those name the rank
			text += ": rank " + list(a.needs(o), " and ")
		}
		parts = append(parts, text)
	}
	glue := "; and "
	if w.Any {
		glue = "; or "
	}
	return fmt.Sprintf("rank %d in %s waits for %s", r.rank, at(w.Place), strings.Join(parts, glue))
}

// maxListed limits the ranks of a list.
const maxListed = 8

// list joins numbers, up to maxListed.
func list(ranks []int, glue string) string {
	var all []string
	for _, r := range ranks[:min(len(ranks), maxListed)] {
		all = append(all, fmt.Sprint(r))
	}
	if len(ranks) > maxListed {
		all = append(all, fmt.Sprintf("%d more", len(ranks)-maxListed))
	}
	return strings.Join(all, glue)
}
