package udplink

import (
	"runtime"
	"sync/atomic"
)

// gate keeps descriptors open while they are in use. Without it a Close on
// another goroutine could free a descriptor's number between the driver's
// reading it and its system call, which would then hit somebody else's file.
type useCount struct {
	state atomic.Int64 // users inside; closedGate added once nobody may enter
}

const closedBit = 1 << 32

// enter reports whether the gate is open; if so leave must follow.
func (g *useCount) enter() bool {
	if g.state.Add(1) < closedBit {
		return true
	}
	g.state.Add(-1)
	return false
}

func (g *useCount) leave() { g.state.Add(-1) }

// close shuts the gate and reports whether it was open.
func (g *useCount) close() bool {
	for {
		s := g.state.Load()
		if s >= closedBit {
			return false
		}
		if g.state.CompareAndSwap(s, s+closedBit) {
			return true
		}
	}
}

// drain returns when nobody is inside a closed gate. Users stay for one system
// call that does not block, so yielding beats sleeping.
func (g *useCount) drain() {
	for g.state.Load() != closedBit {
		runtime.Gosched()
	}
}
