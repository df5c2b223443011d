package rawbench

import (
	"sync/atomic"
	"time"
)

// stall is how long a stream may stand still before what is missing is taken
// for lost.
const stallTimeout = 200 * time.Millisecond

// flow is the perfect flow control between the two goroutines of a stream.
// Each field is written by one side only.
type flow struct {
	received atomic.Uint64 // by the receiver: one more than the highest sequence number seen
	_        [56]byte
	sent     atomic.Uint64 // by the sender
	finished atomic.Bool   // by the sender: sent is final
	_        [47]byte
	failed   atomic.Bool // by either: the other must give up
}

// waitRoom returns when fewer than window segments are under way, or after a
// stall, with the sequence number up to which nothing is under way any more.
func (f *flow) waitRoom(sent, base, window uint64) (newBase uint64) {
	var since time.Time
	for spins := 1; ; spins++ {
		base = max(base, f.received.Load())
		if sent-base < window || f.failed.Load() {
			return base
		}
		if spins%256 == 0 {
			switch {
			case since.IsZero():
				since = time.Now()
			case time.Since(since) > stallTimeout:
				return sent
			}
			yield()
		}
	}
}

// idle decides when a receiver that finds nothing may stop.
type idleTimer struct {
	spins int
	since time.Time
}

func (i *idleTimer) reset() { *i = idleTimer{} }

// over reports whether the stream has ended: all arrived, or nothing has for
// the length of a stall although the sender has finished.
func (i *idleTimer) streamEnded(f *flow, next uint64) bool {
	if f.failed.Load() || (f.finished.Load() && next >= f.sent.Load()) {
		return true
	}
	if i.spins++; i.spins%256 != 0 {
		return false
	}
	yield()
	if !f.finished.Load() {
		return false
	}
	if i.since.IsZero() {
		i.since = time.Now()
	}
	return time.Since(i.since) > stallTimeout
}
