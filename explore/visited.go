package explore

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// visited is a set of states with the lowest depth at which each was reached. It keeps 14 bytes of
// the fingerprint and 2 of the depth, in tables that are at least three eighths full.
type visited struct {
	n      atomic.Int64
	shards [64]shard
}

// shard is an open-addressing table. The high 16 bits of the second word of a slot are the depth
// plus one, and zero in an empty slot.
type shard struct {
	mu    sync.Mutex
	n     int
	slots [][2]uint64
	_     [24]byte // to fill a cache line
}

const (
	depthBits   = 16
	depthShift  = 64 - depthBits
	maxDepth    = 1<<depthBits - 2 // deeper states count as of this depth
	fingerBits  = 1<<depthShift - 1
	initialSize = 16
)

// add adds a state. It returns whether the state is new, and whether it was never reached at so
// low a depth.
func (v *visited) add(fp [16]byte, depth int) (isNew, isShallower bool) {
	lo, hi := binary.LittleEndian.Uint64(fp[:]), binary.LittleEndian.Uint64(fp[8:])&fingerBits
	s := &v.shards[hi%uint64(len(v.shards))]
	entry := [2]uint64{lo, hi | uint64(min(depth, maxDepth)+1)<<depthShift}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n*4 >= len(s.slots)*3 {
		s.grow()
	}
	found := s.find(entry)
	switch {
	case found[1] == 0:
		*found = entry
		s.n++
		v.n.Add(1)
		return true, true
	case entry[1] < found[1]: // same fingerprint
		*found = entry
		return false, true
	}
	return false, false
}

// has reports whether the set has a state.
func (v *visited) has(fp [16]byte) bool {
	lo, hi := binary.LittleEndian.Uint64(fp[:]), binary.LittleEndian.Uint64(fp[8:])&fingerBits
	s := &v.shards[hi%uint64(len(v.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.slots) > 0 && s.find([2]uint64{lo, hi})[1] != 0
}

// find returns the slot of a state, or the empty one for it.
func (s *shard) find(entry [2]uint64) *[2]uint64 {
	for i := entry[0]; ; i++ {
		slot := &s.slots[i&uint64(len(s.slots)-1)]
		if slot[1] == 0 || slot[0] == entry[0] && (slot[1]^entry[1])&fingerBits == 0 {
			return slot
		}
	}
}

// grow doubles the table.
func (s *shard) grow() {
	old := s.slots
	s.slots = make([][2]uint64, max(initialSize, 2*len(old)))
	for _, entry := range old {
		if entry[1] != 0 {
			*s.find(entry) = entry
		}
	}
}
