package racecheck

import "github.com/fabrictest/fabrictest/explore"

// Checker finds races of a program. It is not safe for concurrent use: ranks call it in turn.
type Checker struct {
	ranks       []rankState
	memory      index
	messages    map[envelope][]*Message
	collectives map[commKey]*commState
	windows     map[WindowID]*window
	ordered     []*window // in order of creation
	findings    []explore.Finding
	reported    map[reportKey]bool
	suppressed  int
}

// rankState is what the checker knows of a rank.
type rankState struct {
	clock clock
	last  explore.Place // its last call
	ended bool
}

// New returns a checker of a program with a number of ranks.
func New(ranks int) *Checker {
	c := &Checker{
		ranks: make([]rankState, ranks), memory: newIndex(), messages: map[envelope][]*Message{},
		collectives: map[commKey]*commState{}, windows: map[WindowID]*window{}, reported: map[reportKey]bool{},
	}
	for i := range c.ranks {
		c.ranks[i].clock = make(clock, ranks)
	}
	return c
}

// Ranks is the number of ranks.
func (c *Checker) Ranks() int { return len(c.ranks) }

// begin begins an event of a rank. Stores to its windows since its last event are found first.
func (c *Checker) begin(p explore.Place) {
	c.findStores(p)
	c.ranks[p.Rank].last = p
	c.tick(p.Rank)
}

// tick counts an event of a rank.
func (c *Checker) tick(rank int) { c.ranks[rank].clock[rank]++ }

// snapshot returns a copy of the clock of a rank.
func (c *Checker) snapshot(rank int) clock { return append(clock(nil), c.ranks[rank].clock...) }

// Touch records that the program of a rank loads or stores memory now.
func (c *Checker) Touch(p explore.Place, kind Kind, mem []byte) {
	c.begin(p)
	c.touch(p, kind, mem, c.snapshot(p.Rank), false)
}

// touch records an access to local memory that has been completed by the current event of the rank.
func (c *Checker) touch(p explore.Place, kind Kind, mem []byte, start clock, isBuffer bool) {
	if len(mem) == 0 {
		return
	}
	a := newAccess(p, kind, mem, start)
	a.isBuffer = isBuffer
	a.done = epoch{p.Rank, c.ranks[p.Rank].clock[p.Rank]}
	c.addLocal(a)
}

// addLocal adds an access of a rank to its own memory. It is protected by the locks that the rank holds on
// its own windows there.
func (c *Checker) addLocal(a *access) {
	for _, w := range c.ordered {
		if me, ok := w.rankOf[a.place.Rank]; ok && w.covers(me, a.from, a.to) {
			if s := w.ranks[me].sections[me]; s != nil {
				a.sections = append(a.sections, s)
			}
		}
	}
	c.add(a)
}

// add compares an access with those before it, and keeps it.
func (c *Checker) add(a *access) {
	for _, old := range c.memory.overlapping(a) {
		if !old.conflicts(a) {
			continue
		}
		if !old.orderedBefore(a) {
			c.report(old, a)
		} else if s := old.excludes(a); s != nil && old.kind.writes() && !a.kind.writes() {
			// The program may see what was written under the lock: it knows that the other section was first.
			c.ranks[a.place.Rank].clock.join(s.released)
			a.start = a.start.joined(s.released)
		}
	}
	c.memory.add(a)
	c.noteWrite(a)
	if c.memory.isFull() {
		c.memory.prune(c.knownToAll())
	}
}

// knownToAll returns the clock of what all ranks that have not ended know. An operation that waits for a Post
// will know what its target knows.
func (c *Checker) knownToAll() clock {
	known := make(clock, len(c.ranks))
	for i := range known {
		known[i] = ^uint32(0)
	}
	for i := range c.ranks {
		if c.ranks[i].ended {
			continue
		}
		for k, n := range c.ranks[i].clock {
			known[k] = min(known[k], n)
		}
	}
	return known
}

// End records the end of a rank's program.
func (c *Checker) End(p explore.Place) {
	c.begin(p)
	c.ranks[p.Rank].ended = true
}
