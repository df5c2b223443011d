package udplink

import (
	"runtime"
	"sync/atomic"
)

// useCount keeps file descriptors open while they are in use. Otherwise Close in another
// goroutine could free a descriptor just before a system call, which would then use
// another file.
type useCount struct {
	state atomic.Int64 // number of users, plus closedBit after close
}

const closedBit = 1 << 32

// enter adds a user, unless close was called, which it reports by false. leave must follow
// true.
func (g *useCount) enter() bool {
	if g.state.Add(1) < closedBit {
		return true
	}
	g.state.Add(-1)
	return false
}

func (g *useCount) leave() { g.state.Add(-1) }

// close lets no more users enter. It reports false if it was called before.
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

// drain returns when all users have left, after close. Users stay for one system call that
// does not block, so it yields and does not sleep.
func (g *useCount) drain() {
	for g.state.Load() != closedBit {
		runtime.Gosched()
	}
}
