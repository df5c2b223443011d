package misuse

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/explore"
)

// findDeadlock reports ranks that can never move, and stops the run. livelock says that a rank polls.
func (c *Checker) findDeadlock(waits func(*Rank) *Wait, livelock bool) {
	a := c.analyse(waits, livelock)
	core := a.core()
	if len(core) == 0 || c.stop != nil {
		return
	}
	kind, places := a.classify(core)
	text := a.graph(core)
	switch {
	case c.o.Synchronous:
		text, kind = strings.TrimPrefix(kind, "deadlock: ")+", if sends are synchronous: "+text, Unsafe
	case livelock:
		text, kind = strings.TrimPrefix(kind, "deadlock: ")+": "+text, Livelock
	}
	c.reportFatal(kind, text, places...)
}

// WaitGraph returns what the ranks wait for that can never move, now that nothing happens any more; empty
// if there is none.
func (c *Checker) WaitGraph() string {
	a := c.analyse(func(r *Rank) *Wait { return r.wait }, false)
	core := a.core()
	if len(core) == 0 {
		return ""
	}
	kind, _ := a.classify(core)
	return kind + ": " + a.graph(core)
}

// needsOf returns the stuck ranks that a stuck rank waits for, and whether it waits for an ended one.
func (a *analysis) needsOf(r *Rank) (ranks []int) {
	for _, o := range a.open(a.waits[r.rank]) {
		for _, n := range a.needs(o) {
			if a.isStuck(a.c.ranks[n]) && !slices.Contains(ranks, n) {
				ranks = append(ranks, n)
			}
		}
	}
	return ranks
}

// core returns the smallest group of stuck ranks that wait only for each other and for ended ranks: a
// cycle, or a knot if some wait for any of several.
func (a *analysis) core() (smallest []*Rank) {
	for _, r := range a.c.ranks {
		if !a.isStuck(r) {
			continue
		}
		group := []*Rank{r}
		for i := 0; i < len(group); i++ {
			for _, n := range a.needsOf(group[i]) {
				if other := a.c.ranks[n]; !slices.Contains(group, other) {
					group = append(group, other)
				}
			}
		}
		if smallest == nil || len(group) < len(smallest) {
			smallest = group
		}
	}
	slices.SortFunc(smallest, func(x, y *Rank) int { return x.rank - y.rank })
	return smallest
}

// graph describes the waits of the core, the cycle among them, and the waits of the ranks that wait for
// the core, one line each.
func (a *analysis) graph(core []*Rank) string {
	var lines, others []string
	for _, r := range core {
		lines = append(lines, a.line(r))
	}
	ended := 0
	for _, r := range a.c.ranks {
		switch {
		case r != nil && r.ended:
			ended++
		case a.isStuck(r) && !slices.Contains(core, r):
			others = append(others, a.line(r))
		}
	}
	if c := a.cycle(core[0]); c != "" {
		lines = append(lines, c)
	}
	if ended > 0 {
		lines = append(lines, fmt.Sprintf("%d ranks have ended", ended))
	}
	if n := len(others); n > maxListed {
		others = append(others[:maxListed], fmt.Sprintf("%d more ranks wait for these", n-maxListed))
	}
	if len(others) > 0 {
		lines = append(append(lines, "behind them:"), others...)
	}
	return strings.Join(lines, "\n    ")
}

// cycle returns a cycle of waits through a rank of the core as text; empty if there is none.
func (a *analysis) cycle(from *Rank) string {
	path := []int{from.rank}
	for {
		needs := a.needsOf(a.c.ranks[path[len(path)-1]])
		if len(needs) == 0 {
			return ""
		}
		if i := slices.Index(path, needs[0]); i >= 0 {
			return "cycle: rank " + list(append(path[i:], needs[0]), " waits for ")
		}
		path = append(path, needs[0])
	}
}

// classify returns the kind of a deadlock, and the calls that cause it.
func (a *analysis) classify(core []*Rank) (kind string, places []explore.Place) {
	var open []*Op
	for _, r := range core {
		w := a.waits[r.rank]
		for _, o := range a.open(w) {
			open = append(open, o)
			places = append(places, o.Place)
			if w.Place != o.Place {
				places = append(places, w.Place)
			}
		}
	}
	for _, find := range []func(*Op) (string, []explore.Place){a.wildcardTook, a.nearMiss} {
		for _, o := range open {
			if kind, places := find(o); kind != "" {
				return kind, places
			}
		}
	}
	return a.kindOf(core, open), places
}

// kindOf returns the kind of a deadlock by the operations that the ranks of its core wait for.
func (a *analysis) kindOf(core []*Rank, open []*Op) string {
	has := func(kinds ...opKind) bool {
		return slices.ContainsFunc(open, func(o *Op) bool { return slices.Contains(kinds, o.kind) })
	}
	receives, sends := has(recvOp, probeOp), has(sendOp)
	isCycle := a.cycle(core[0]) != ""
	switch {
	case has(lockOp) && isCycle && !receives && !sends && !has(collectiveOp, postOp, completeOp):
		return LockOrder
	case has(lockOp):
		return LockHeld
	case has(postOp, completeOp):
		return PostStart
	case !isCycle:
		return MissingPartner
	case has(collectiveOp) && (receives || sends):
		return CrossedCalls
	case has(collectiveOp):
		return CrossedComms
	case len(core) == 1:
		return ToItself
	case receives && sends:
		return SendReceive
	case receives && len(core) == 2:
		return HeadToHead
	case receives:
		return RingReceives
	case len(core) == 2:
		return SendsHeadToHead
	}
	return RingSends
}

// wildcardTook finds a receive from any source, or with any tag, that took the message that an operation
// waits for.
func (a *analysis) wildcardTook(o *Op) (kind string, places []explore.Place) {
	if o.kind != recvOp && o.kind != probeOp {
		return "", nil
	}
	for _, took := range o.rank.took {
		if matches(o, took.partner) && (o.Peer != Any && took.Peer == Any || o.Tag != Any && took.Tag == Any) {
			return WildcardTook, []explore.Place{o.Place, took.Place, took.partner.Place}
		}
	}
	return "", nil
}

// nearMiss finds a call that would match if it had another tag, communicator or rank.
func (a *analysis) nearMiss(o *Op) (kind string, places []explore.Place) {
	for _, want := range []string{WrongTag, WrongComm, WrongRank} {
		for _, other := range a.partners(o) {
			s, r := o, other
			if o.kind != sendOp {
				s, r = other, o
			}
			if !a.paired[other] && missedBy(r, s) == want {
				return want, []explore.Place{o.Place, other.Place}
			}
		}
	}
	return "", nil
}

// partners returns the receives that a send could match, or the sends that a receive or a probe could.
func (a *analysis) partners(o *Op) (all []*Op) {
	switch o.kind {
	case sendOp:
		return slices.Concat(a.c.receives...)
	case recvOp, probeOp:
		return slices.Concat(a.c.sends...)
	}
	return nil
}

// missedBy returns the kind of the deadlock if one argument only prevents that a receive matches a send.
func missedBy(r, s *Op) string {
	tag := r.Tag == Any || r.Tag == s.Tag
	comm := r.Comm.id == s.Comm.id
	source := r.Peer == Any || r.Peer == s.rank.rank
	target := s.Peer == r.rank.rank
	switch {
	case !tag && comm && source && target:
		return WrongTag
	case tag && !comm && source && target:
		return WrongComm
	case tag && comm && source != target:
		return WrongRank
	}
	return ""
}
