package drive

import (
	"sync/atomic"
	"time"
)

// yieldPolicy decides when an application whose polls find nothing yields the
// processor. On a machine with fewer processors than spinning programs the peer
// must get to run. How often to yield is learned from how long each yield took.
type yieldPolicy struct {
	emptyPolls atomic.Uint32 // consecutive polls that found nothing
	shift      atomic.Uint32 // a yield follows every yieldInterval>>shift empty polls
}

const (
	// yieldInterval is the number of empty polls between yields on an otherwise idle processor.
	yieldInterval = 64
	// maxShift leaves two polls between yields.
	maxShift = 5
	// spinThreshold is the number of empty polls after which an application is taken to spin.
	spinThreshold = 4
	// A yield that takes between these two ran programs that poll in turns with
	// this one: several, which may receive and send before they yield. A shorter
	// yield ran nothing; after a longer one another program computes for a time
	// slice, and yielding more often would give it more than its share.
	minSharedYield = 1500 * time.Nanosecond
	maxSharedYield = time.Millisecond
)

// pollFound notes a poll of the application that returned a completion.
func (y *yieldPolicy) pollFound() {
	if y.emptyPolls.Load() != 0 {
		y.emptyPolls.Store(0)
	}
}

// spinning reports whether the application has polled for a while and found nothing.
func (y *yieldPolicy) spinning() bool { return y.emptyPolls.Load() > spinThreshold }

// pollEmpty notes a poll that returned nothing. Every yieldInterval>>shift such polls, it yields
// the processor, and adapts shift to the time that the yield took.
func (y *yieldPolicy) pollEmpty() {
	shift := y.shift.Load()
	if y.emptyPolls.Add(1)%(yieldInterval>>shift) != 0 {
		return
	}
	start := time.Now()
	yield()
	y.adapt(shift, time.Since(start))
}

// adapt halves the interval between yields (shift+1) if the last yield took as long as a yield to
// another program that polls, such as the peer; else it doubles the interval (shift-1), within
// limits. shift is the current y.shift.
func (y *yieldPolicy) adapt(shift uint32, took time.Duration) {
	switch shared := minSharedYield < took && took < maxSharedYield; {
	case shared && shift < maxShift:
		y.shift.Store(shift + 1)
	case !shared && shift > 0:
		y.shift.Store(shift - 1)
	}
}
