package udplink

import (
	"runtime"
	"sync/atomic"
)

// gate keeps descriptors open while they are in use. Without it a Close on
// another goroutine could free a descriptor's number between the driver's
// reading it and its system call, which would then hit somebody else's file.
type gate struct {
	state atomic.Int64 // users inside; closedGate added once nobody may enter
}

const closedGate = 1 << 32

// enter reports whether the gate is open; if so leave must follow.
func (g *gate) enter() bool {
	if g.state.Add(1) < closedGate {
		return true
	}
	g.state.Add(-1)
	return false
}

func (g *gate) leave() { g.state.Add(-1) }

// close shuts the gate and reports whether it was open.
func (g *gate) close() bool {
	for {
		s := g.state.Load()
		if s >= closedGate {
			return false
		}
		if g.state.CompareAndSwap(s, s+closedGate) {
			return true
		}
	}
}

// drain returns when nobody is inside a closed gate. Users stay for one system
// call that does not block, so yielding beats sleeping.
func (g *gate) drain() {
	for g.state.Load() != closedGate {
		runtime.Gosched()
	}
}
