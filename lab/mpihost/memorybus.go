package mpihost

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
)

// memoryBus is the bus between the cores and the memory of a simulated host. The copies of all its ranks
// share it, in turns of a piece.
type memoryBus struct {
	rateBps uint64        // 0: the bus limits no copy
	cached  int           // the first bytes of a copy, which fit into the cache
	free    time.Duration // the virtual time from which on no piece is on the bus
}

// copyPiece is the number of bytes of a piece.
const copyPiece = 4 << 10

// copy lets the time of a copy of n bytes pass. It takes alone, or longer if the bus is slower or busy.
func (b *memoryBus) copy(p *sim.Proc, n int, alone time.Duration) {
	if b.rateBps == 0 {
		p.Compute(alone)
		return
	}
	until := func(end int) time.Duration { return alone * time.Duration(end) / time.Duration(n) }
	for first := 0; first < n; first += copyPiece {
		end := min(first+copyPiece, n)
		now := p.Now()
		b.free = max(b.free, now) + b.crossing(end) - b.crossing(first)
		p.Compute(max(b.free-now, until(end)-until(first)))
	}
}

// crossing returns for how long the first n bytes of a copy use the bus. Those that fit into the cache cross
// it once, because another core or the NIC has written them. The others do three times: the lines of both
// buffers are read, and those of one are written back.
func (b *memoryBus) crossing(n int) time.Duration {
	cached := min(n, b.cached)
	return time.Duration(float64(cached+3*(n-cached)) * 8e9 / float64(b.rateBps))
}
