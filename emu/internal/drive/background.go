package drive

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

const (
	// backgroundInterval is how often the background goroutine checks whether it
	// is needed while applications poll.
	backgroundInterval = time.Millisecond
	// parkAfter is the number of checks during one sleep of the poller's holder after
	// which the background goroutine parks.
	parkAfter = 64
	// backgroundSpins is how many empty polls the background goroutine makes before it sleeps: in a
	// burst the next packet arrives before a wake-up would end.
	backgroundSpins = 32
)

// runInBackground runs the device while no application polls: it receives and sends, and handles
// deadlines that pass while the goroutine that holds the poller (the right to block on the network)
// is asleep. While applications poll, it only checks every backgroundInterval whether it is needed,
// or parks (blocks until unpark) if that goroutine sleeps for long.
func (r *Real) runInBackground() {
	defer close(r.stopped)
	var detector idleDetector
	for {
		r.lock()
		if r.closed {
			r.mu.Unlock()
			return
		}
		now := r.Now()
		active, idle := r.poller.appActive(now), detector.mayPark(r)
		// No application will send the acknowledgements, or a deadline passed appIdle ago and no
		// goroutine has handled it.
		if !active && r.acks.pending || r.engine.Deadline() <= now.Add(-appIdle) {
			r.acks.noteUnanswered()
			r.pump(now) // the holder of the poller can stay asleep
		}
		r.parked = idle
		r.mu.Unlock()
		if idle {
			r.park()
			continue
		}
		polled := !active && r.pollInBackground()
		if !polled {
			r.pause(backgroundInterval)
		}
	}
}

// idleDetector tells when the background goroutine may park.
type idleDetector struct {
	lastPoll mono.Time
	checks   int // consecutive checks during the same sleep of the poller's holder
}

// mayPark reports whether the background goroutine may block until unpark: the goroutine that holds
// the poller has slept during the last parkAfter calls and wakes in time for the next deadline, and
// no acknowledgement is delayed. The lock of r is held.
func (d *idleDetector) mayPark(r *Real) bool {
	p := &r.poller // its wakeAt is 0 while the holder is awake
	if p.lastPoll != d.lastPoll || p.wakeAt == 0 || r.engine.Deadline() < p.wakeAt || r.acks.pending {
		d.lastPoll, d.checks = p.lastPoll, 0
		return false
	}
	d.checks++
	return d.checks > parkAfter
}

// park blocks the background goroutine until unpark or Close.
func (r *Real) park() {
	select {
	case <-r.unparked:
	case <-r.done:
	}
}

// unpark wakes the background goroutine if it is parked. The caller holds the lock.
func (r *Real) unpark() {
	if r.parked {
		r.parked = false
		r.unparked <- struct{}{}
	}
}

// pollInBackground acquires the poller and runs the device until an application polls. It
// reports false, and does nothing, if another goroutine holds the poller.
func (r *Real) pollInBackground() bool {
	if !r.poller.tryAcquire() {
		return false
	}
	r.lock()
	empty := backgroundSpins // empty polls in a row; starts at the limit, to sleep at once if nothing has arrived
	for {
		if r.receiveAndSend() {
			empty = 0
		}
		if r.closed || r.poller.appActive(r.Now()) {
			break
		}
		if empty++; empty <= backgroundSpins {
			r.mu.Unlock()
			yield() // other goroutines may want the processor, and the lock
			r.lock()
			continue
		}
		r.poller.background = true
		r.sleep(r.sleepTime(r.Now()))
		r.poller.background = false
	}
	r.mu.Unlock()
	r.poller.release()
	return true
}

// pause sleeps for d, or until Close.
func (r *Real) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.done:
	}
}
