package racecheck

import "github.com/fabrictest/fabrictest/explore"

// WindowID identifies a window by the context of its communicator, and the world rank of its rank 0.
type WindowID struct {
	Context uint32
	First   int
}

// window is a window with the state of its ranks.
type window struct {
	name   string
	ranks  []windowRank
	rankOf map[int]int // by world rank
}

// windowRank is the state of a rank of a window, as a target and as an origin.
type windowRank struct {
	world  int
	mem    []byte
	shadow []byte    // of mem, as of the last event of the rank
	writes []*access // that may have changed mem since then

	// As an origin:
	open     []*Op            // not complete at their targets, or not at the origin
	sections map[int]*section // locks that it holds, by target
	fences   int
	access   map[int]int // number of the exposure that the open Start uses, by target

	// As a target:
	fenceClocks map[int]clock      // of its last fences, by number
	exposures   map[int]*exposures // by origin
}

// section is the time from a lock to its unlock.
type section struct {
	lock      lockID
	exclusive bool
	released  clock // nil while the lock is held
}

// lockID is the lock of a rank of a window.
type lockID struct {
	w      *window
	target int
}

// OpenWindow records the memory of a rank in a window, of which it is a rank.
func (c *Checker) OpenWindow(p explore.Place, id WindowID, name string, rank, size int, mem []byte) {
	c.begin(p)
	w := c.windows[id]
	if w == nil {
		w = &window{name: name, ranks: make([]windowRank, size), rankOf: map[int]int{}}
		c.windows[id] = w
		c.ordered = append(c.ordered, w)
	}
	w.rankOf[p.Rank] = rank
	r := &w.ranks[rank]
	*r = windowRank{world: p.Rank, mem: mem, sections: map[int]*section{}, fenceClocks: map[int]clock{}, exposures: map[int]*exposures{}}
	if len(mem) <= MaxWatched {
		r.shadow = append([]byte(nil), mem...)
	}
}

// CloseWindow records that a rank frees a window.
func (c *Checker) CloseWindow(p explore.Place, id WindowID) {
	c.begin(p)
	w := c.windows[id]
	delete(w.rankOf, p.Rank)
	if len(w.rankOf) > 0 {
		return
	}
	delete(c.windows, id)
	for i, other := range c.ordered {
		if other == w {
			c.ordered = append(c.ordered[:i:i], c.ordered[i+1:]...)
			return
		}
	}
}

// covers reports whether the memory of a rank has one of some addresses.
func (w *window) covers(rank int, from, to uintptr) bool {
	mem := w.ranks[rank].mem
	at := addressOf(mem)
	return len(mem) > 0 && at < to && from < at+uintptr(len(mem))
}

// RMA is an operation on a window.
type RMA struct {
	Window WindowID
	Target int // rank of the window
	Offset int
	Bytes  int
	Kind   Kind
	Element
	Reads, Writes [][]byte // local buffers
}

// Start starts an operation on a window.
func (c *Checker) Start(p explore.Place, a RMA) *Op {
	c.begin(p)
	o := c.startBuffers(p, a.Reads, a.Writes)
	w := c.windows[a.Window]
	o.window, o.target, o.origin, o.reads = w, a.Target, w.rankOf[p.Rank], !a.Kind.writes()
	origin, target := &w.ranks[o.origin], &w.ranks[a.Target]
	if mem := target.mem; a.Bytes > 0 && a.Offset >= 0 && a.Offset+a.Bytes <= len(mem) {
		o.remote = newAccess(p, a.Kind, mem[a.Offset:][:a.Bytes], o.start)
		o.remote.element = a.Element
		if s := origin.sections[a.Target]; s != nil {
			o.remote.sections = append(o.remote.sections, s)
		}
	}
	origin.open = append(origin.open, o)
	c.reachTarget(o, origin, target)
	return o
}

// reachTarget adds the access to the window, after what the target has done before it exposed its window.
// An access that waits for a Post is added by the Post.
func (c *Checker) reachTarget(o *Op, origin, target *windowRank) {
	switch {
	case o.remote == nil:
		return
	case origin.access != nil:
		if number, ok := origin.access[o.target]; ok && number != unchecked {
			e := target.exposed(o.origin)
			if number >= len(e.posts) {
				e.queued = append(e.queued, queuedOp{number, o})
				return
			}
			o.remote.start = o.remote.start.joined(e.posts[number])
		}
	case len(origin.sections) == 0: // a fence epoch
		o.remote.start = o.remote.start.joined(target.fenceClocks[origin.fences])
	}
	c.add(o.remote)
}
