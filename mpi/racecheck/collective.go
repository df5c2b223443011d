package racecheck

import "github.com/fabrictest/fabrictest/explore"

// Edges say which ranks of a collective operation wait for which others.
type Edges uint8

// The edges.
const (
	NoEdges  Edges = iota
	All            // every rank waits for all
	FromRoot       // every rank waits for the root
	ToRoot         // the root waits for all
	Prefix         // a rank waits for those before it
)

// Comm is a rank's view of a communicator.
type Comm struct {
	Context uint32
	First   int // world rank of its rank 0: communicators of one split have the same context
	Rank    int
	Size    int
}

type commKey struct {
	context uint32
	first   int
}

// commState is a communicator with the collective operations that not all of its ranks have completed.
type commState struct {
	started []int // operations, by rank
	active  map[int]*collective
}

// collective is a collective operation. All ranks call those of a communicator in the same order.
type collective struct {
	comm   *commState
	number int
	starts []clock // by rank; nil before its call
	ended  int
}

// participant is what a rank waits for.
type participant struct {
	edges      Edges
	root, rank int
}

// Collective starts a collective operation that reads and writes buffers.
func (c *Checker) Collective(p explore.Place, comm Comm, edges Edges, root int, reads, writes [][]byte) *Op {
	c.begin(p)
	o := c.startBuffers(p, reads, writes)
	key := commKey{comm.Context, comm.First}
	s := c.collectives[key]
	if s == nil {
		s = &commState{started: make([]int, comm.Size), active: map[int]*collective{}}
		c.collectives[key] = s
	}
	n := s.started[comm.Rank]
	s.started[comm.Rank]++
	x := s.active[n]
	if x == nil {
		x = &collective{comm: s, number: n, starts: make([]clock, comm.Size)}
		s.active[n] = x
	}
	x.starts[comm.Rank] = o.start
	o.collective, o.participant = x, participant{edges, root, comm.Rank}
	return o
}

// endCollective joins the clocks of the ranks that a rank has waited for.
func (c *Checker) endCollective(rank int, o *Op) {
	x, me := o.collective, o.participant
	for i, start := range x.starts {
		if me.waitsFor(i) {
			c.ranks[rank].clock.join(start)
		}
	}
	if x.ended++; x.ended == len(x.starts) {
		delete(x.comm.active, x.number)
	}
	o.collective = nil
}

// waitsFor reports whether a rank waits for another one.
func (p participant) waitsFor(other int) bool {
	switch p.edges {
	case All:
		return true
	case FromRoot:
		return other == p.root
	case ToRoot:
		return p.rank == p.root
	case Prefix:
		return other < p.rank
	}
	return false
}
