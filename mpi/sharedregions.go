package mpi

import (
	"sync/atomic"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxRegions is how many operations of one kind can use shared memory at once, and maxRegionBytes limits the size of
// their regions in all.
const (
	maxRegions     = 8
	maxRegionBytes = 64 << 20
)

// sharedRegions is memory that the ranks of a communicator on one host share in nonblocking and persistent operations of
// one kind. All ranks start these in the same order, and each operation uses the next region. It begins when all
// ranks of the host have completed the operation that used the region before: each rank counts in shared memory how many it
// has completed, by region.
type sharedRegions struct {
	memory    []byte // of the regions, which follow each other
	bytes     int    // of a region
	ranks     []int  // of the host
	completed []*[maxRegions]atomic.Uint64
	mine      *[maxRegions]atomic.Uint64
	started   uint64 // operations
}

// regionUse is the use of a region by an operation.
type regionUse struct {
	region int
	number uint64 // of operations that used the region before
	waited bool
	begun  bool
}

// regions returns the regions with a key, which the first call opens.
func (c *Comm) regions(key segmentKey) (*sharedRegions, error) {
	if s := c.activeRegions[key]; s != nil {
		return s, nil
	}
	s := &sharedRegions{bytes: key.bytes}
	for r := range c.size {
		if c.Node(r) == c.Node(c.me) {
			s.ranks = append(s.ranks, r)
		}
	}
	const counters = maxRegions * 8 // bytes of a rank: a cache line
	header := len(s.ranks) * counters
	memory, err := c.rank.env.Shared.Segment(key.name(c, "nonblocking"), header+max(1, min(maxRegions, maxRegionBytes/key.bytes))*key.bytes)
	if err != nil {
		return nil, err
	}
	s.memory = memory[header:]
	for i, r := range s.ranks {
		s.completed = append(s.completed, (*[maxRegions]atomic.Uint64)(unsafe.Pointer(&memory[i*counters])))
		if r == c.me {
			s.mine = s.completed[i]
		}
	}
	if c.activeRegions == nil {
		c.activeRegions = map[segmentKey]*sharedRegions{}
	}
	c.activeRegions[key] = s
	return s, nil
}

// next assigns a region to the next operation.
func (s *sharedRegions) next() (use regionUse, memory []byte) {
	n := uint64(len(s.memory) / s.bytes)
	use.region, use.number = int(s.started%n), s.started/n
	s.started++
	return use, s.memory[use.region*s.bytes:][:s.bytes]
}

// eachUser calls visit for the ranks that have not completed the operations that used a region before.
func (s *sharedRegions) eachUser(use regionUse, visit func(rank int)) {
	for i, completed := range s.completed {
		if completed[use.region].Load() < use.number {
			visit(s.ranks[i])
		}
	}
}

// takeRegion gives the operation the next region, if its algorithm needs one.
func (x *execution) takeRegion() {
	if x.regions != nil {
		x.c.rank.shared.Operations++
		x.use, x.buffers[coll.Shared] = x.regions.next()
	}
}

// mayBegin reports whether the region of the operation is free, or the operation needs none or has begun. An operation that waits
// for a region fails when a member is lost.
func (x *execution) mayBegin() bool {
	if x.regions == nil || x.use.begun {
		return true
	}
	k, isFree := x.c.rank, true
	k.env.Charge(verbs.WorkPollMemory, len(x.regions.ranks), k.env.HostCosts().PollMemory)
	x.regions.eachUser(x.use, func(int) { isFree = false })
	if !isFree && !x.failWithContext() {
		if !x.use.waited {
			x.use.waited = true
			k.shared.Waits++
		}
		return false
	}
	x.use.begun = true
	return true
}

// leaveRegion notes that this rank needs the region of the operation no more.
func (x *execution) leaveRegion() {
	if x.regions != nil {
		x.regions.mine[x.use.region].Store(x.use.number + 1)
	}
}

// eachRegionUser calls visit for the other ranks, in the world, that operations wait for which have not begun.
func (k *rank) eachRegionUser(visit func(peer int)) {
	for _, x := range k.collectives {
		if x.regions == nil || x.use.begun {
			continue
		}
		x.regions.eachUser(x.use, func(rank int) {
			if rank != x.c.me {
				visit(x.c.worldRank(rank))
			}
		})
	}
}
