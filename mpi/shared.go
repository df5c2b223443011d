package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/coll"
)

// minSharedBytes and maxSharedBytes limit the memory that the ranks of a host share in one operation.
const (
	minSharedBytes = 256 << 10
	maxSharedBytes = 64 << 20
)

// sharedSegment is memory that the ranks of a communicator on one host share in operations of one kind. It
// has two halves, which operations use in turn: while a rank writes to one, others may still read the other.
// A rank that begins an operation knows that all others have completed the last but one, because each
// operation of such an algorithm either waits for all readers or needs data of all ranks.
type sharedSegment struct {
	memory []byte
	half   int // used by the last operation
}

// segmentKey says what a segment is for.
type segmentKey struct {
	op    coll.Op
	bytes int // of a half
}

// sharedLimit returns the size of the largest memory that the ranks of a host can share.
func (c *Comm) sharedLimit() int {
	if c.rank.env.Shared == nil || c.rank.opts.Carrier.NoSharedMemory {
		return 0
	}
	return maxSharedBytes
}

// share gives a call the memory that the ranks of a host share, if its chosen algorithm needs it and fits.
// Only one operation at a time can use it: no nonblocking one does.
func (c *Comm) share(a *collectiveCall) error {
	x := c.chosen(&a.Call)
	if x == nil {
		return nil
	}
	call := a.Call
	call.Rank, call.Size, call.Nodes, call.Shared = c.me, c.size, c.nodesFor(x), c.sharedLimit()
	if !x.Fits(&call) || x.SharedBytes(&call) == 0 {
		return nil
	}
	key := segmentKey{a.Op, minSharedBytes}
	for key.bytes < x.SharedBytes(&call) {
		key.bytes *= 4
	}
	s, err := c.segment(key)
	if err != nil {
		return err
	}
	s.half = 1 - s.half
	a.shared, a.Shared = s.memory[s.half*key.bytes:][:key.bytes], key.bytes
	return nil
}

// segment returns the segment with a key, and opens it if it is new. Communicators of one Split have the
// same context, and different first ranks.
func (c *Comm) segment(key segmentKey) (*sharedSegment, error) {
	if s := c.segments[key]; s != nil {
		return s, nil
	}
	name := fmt.Sprintf("%v-%d-%d-%d", key.op, key.bytes, c.context, c.worldRank(0))
	memory, err := c.rank.env.Shared.Segment(name, 2*key.bytes)
	if err != nil {
		return nil, err
	}
	if c.segments == nil {
		c.segments = map[segmentKey]*sharedSegment{}
	}
	c.segments[key] = &sharedSegment{memory: memory}
	return c.segments[key], nil
}

// nodesFor returns the nodes of the ranks, if an algorithm needs them.
func (c *Comm) nodesFor(a *coll.Algorithm) *coll.Nodes {
	if a == nil || a.Needs&coll.KnownNodes == 0 {
		return nil
	}
	if c.nodes == nil {
		c.nodes = coll.NewNodes(c.size, c.Node)
	}
	return c.nodes
}
