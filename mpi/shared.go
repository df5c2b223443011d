package mpi

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/mpi/coll"
)

// minSharedBytes and maxSharedBytes limit the memory that the ranks of a host share in one operation.
const (
	minSharedBytes = 256 << 10
	maxSharedBytes = 64 << 20
)

// SharedStats counts collective operations through memory that the ranks of a host share.
type SharedStats struct {
	Operations uint64
	// Waits counts nonblocking and persistent operations that started when an earlier one had ended, because all regions of
	// shared memory were in use.
	Waits uint64
	// Fallbacks counts operations with another algorithm than the chosen one, which needs more shared memory than there is.
	Fallbacks uint64
}

// sharedSegment is memory that the ranks of a communicator on one host share in blocking operations of one kind. It
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
	bytes int // of a half, or of a region
}

// name returns the name of a segment of a communicator. Communicators of one Split have the same context, and different
// first ranks.
func (key segmentKey) name(c *Comm, kind string) string {
	return fmt.Sprintf("%s-%v-%d-%d-%d", kind, key.op, key.bytes, c.context, c.worldRank(0))
}

// sharedLimit returns the size of the largest memory that the ranks of a host can share.
func (c *Comm) sharedLimit() int {
	if c.rank.env.Shared == nil || c.rank.opts.Carrier.NoSharedMemory {
		return 0
	}
	return maxSharedBytes
}

// share gives a call the memory that the ranks of a host share, if its chosen algorithm needs it and fits: half of a
// segment if the call is blocking, else one of several regions.
func (c *Comm) share(a *collectiveCall, isBlocking bool) error {
	x := c.chosen(&a.Call)
	if x == nil {
		return nil
	}
	call := a.Call
	call.Rank, call.Size, call.Nodes, call.Shared, call.Segment = c.me, c.size, c.nodesFor(x), c.sharedLimit(), c.segmentBytes()
	if !x.Fits(&call) {
		if call.Shared = math.MaxInt; x.Fits(&call) {
			c.rank.shared.Fallbacks++
		}
		return nil
	}
	if x.SharedBytes(&call) == 0 {
		return nil
	}
	key := segmentKey{a.Op, minSharedBytes}
	for key.bytes < x.SharedBytes(&call) {
		key.bytes *= 4
	}
	a.Shared = key.bytes
	if isBlocking {
		return c.shareHalf(a, key)
	}
	var err error
	a.regions, err = c.regions(key)
	return err
}

// shareHalf gives a call the other half of a segment than the last call had. The first call opens the segment.
func (c *Comm) shareHalf(a *collectiveCall, key segmentKey) error {
	s := c.segments[key]
	if s == nil {
		memory, err := c.rank.env.Shared.Segment(key.name(c, "blocking"), 2*key.bytes)
		if err != nil {
			return err
		}
		if c.segments == nil {
			c.segments = map[segmentKey]*sharedSegment{}
		}
		s = &sharedSegment{memory: memory}
		c.segments[key] = s
	}
	c.rank.shared.Operations++
	s.half = 1 - s.half
	a.shared = s.memory[s.half*key.bytes:][:key.bytes]
	return nil
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
