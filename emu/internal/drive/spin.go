package drive

import (
	"sync/atomic"
	"time"
)

// spinner decides when a program that polls in vain offers its processor to
// others: on a machine with fewer processors than programs that spin, the one it
// waits for must get to run. That may be never, or at every other poll, and is
// learned from how long the processor was away the last time.
type spinner struct {
	fruitless atomic.Uint32 // polls in a row that found nothing
	hurry     atomic.Uint32 // by how many powers of two less than patience
}

const (
	// patience is how many polls in vain go by where nobody else wants to run.
	patience = 64
	// spinning is how many polls in vain make a program one that spins.
	spinning = 4
	// mostHurry leaves two of them.
	mostHurry = 5
	// Someone ran who takes turns with us if the processor was away for more than
	// another thread takes to say that it has nothing to do, and less than a
	// program takes that computes. To the latter one gives no more than one must.
	leastTurn = 1500 * time.Nanosecond
	mostTurn  = 100 * time.Microsecond
)

func (s *spinner) found() {
	if s.fruitless.Load() != 0 {
		s.fruitless.Store(0)
	}
}

// spins reports whether the program has polled in vain for a while.
func (s *spinner) spins() bool { return s.fruitless.Load() > spinning }

// idle is called after each poll that found nothing.
func (s *spinner) idle() {
	hurry := s.hurry.Load()
	if s.fruitless.Add(1)%(patience>>hurry) != 0 {
		return
	}
	start := time.Now()
	yield()
	s.learn(hurry, time.Since(start))
}

// learn takes in how long the processor was away.
func (s *spinner) learn(hurry uint32, away time.Duration) {
	switch shared := leastTurn < away && away < mostTurn; {
	case shared && hurry < mostHurry:
		s.hurry.Store(hurry + 1)
	case !shared && hurry > 0:
		s.hurry.Store(hurry - 1)
	}
}
