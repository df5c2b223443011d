package perflab

import (
	"sync/atomic"
	"time"
)

// stallTimeout is the time without progress after which missing segments are taken to be
// lost.
const stallTimeout = 200 * time.Millisecond

// spinsPerClockRead is how often a side polls before it yields and reads the clock.
const spinsPerClockRead = 256

// flow is the flow control between the two goroutines of a stream. Each field is written by
// one of them only.
type flow struct {
	received atomic.Uint64 // by the receiver: highest sequence number seen, plus 1
	_        [56]byte
	sent     atomic.Uint64 // by the sender
	finished atomic.Bool   // by the sender: sent is final
	_        [47]byte
	failed   atomic.Bool // by either: the other one must stop
}

// waitForWindow returns when fewer than window of the segments before sequence number end are
// in flight, or after stallTimeout, when it counts all of them as lost. base is the sequence
// number before which no segment is in flight; waitForWindow returns its new value.
func (f *flow) waitForWindow(end, base, window uint64) (newBase uint64) {
	var since time.Time
	for spins := 1; ; spins++ {
		base = max(base, f.received.Load())
		if end-base < window || f.failed.Load() {
			return base
		}
		if spins%spinsPerClockRead == 0 {
			switch {
			case since.IsZero():
				since = time.Now()
			case time.Since(since) > stallTimeout:
				return end
			}
			yield()
		}
	}
}

// idleTimer decides when a receiver without segments may stop.
type idleTimer struct {
	spins int
	since time.Time
}

// streamEnded reports whether a receiver without new segments may stop: a side has failed, or the
// sender has finished and the last segment has arrived, or none has for stallTimeout. next is the
// sequence number after the highest received.
func (i *idleTimer) streamEnded(f *flow, next uint64) bool {
	if f.failed.Load() || (f.finished.Load() && next >= f.sent.Load()) {
		return true
	}
	if i.spins++; i.spins%spinsPerClockRead != 0 {
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
