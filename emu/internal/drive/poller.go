package drive

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

const (
	// appIdle is how long after an application's last poll the background
	// goroutine takes the poller.
	appIdle = 250 * time.Microsecond
	// maxPollSleep bounds the holder's sleep while there is traffic. A deadline
	// that moves nearer then seldom has to wake the holder.
	maxPollSleep = 50 * time.Millisecond
	// quietAfter is the time without traffic after which the holder sleeps until
	// the next deadline.
	quietAfter = time.Second
)

// poller is the right to block on the network. One goroutine holds it at a time:
// a waiting application if there is one, else the background goroutine. A packet
// thus wakes the goroutine that waits for it, and no other.
type poller struct {
	token      chan struct{} // full while no goroutine holds the poller
	background bool          // the holder is the background goroutine, asleep
	wakeAt     mono.Time     // when the sleeping holder wakes by itself; 0 while it is awake
	lastPoll   mono.Time     // last time an application polled or waited
	lastEvent  mono.Time     // last packet sent or received
}

// newPoller returns a poller that no goroutine holds. It sets the last poll so long before now that
// appActive returns false.
func newPoller(now mono.Time) poller {
	p := poller{token: make(chan struct{}, 1), lastPoll: now.Add(-appIdle)}
	p.release()
	return p
}

// tryAcquire takes the poller, or returns false if another goroutine holds it.
func (p *poller) tryAcquire() bool {
	select {
	case <-p.token:
		return true
	default:
		return false
	}
}

// release lets another goroutine acquire the poller.
func (p *poller) release() { p.token <- struct{}{} }

// oversleeps reports whether a goroutine holds the poller, and sleeps until after the deadline.
func (p *poller) oversleeps(deadline mono.Time) bool {
	return deadline < p.wakeAt && len(p.token) == 0
}

// appActive reports whether an application has polled or waited recently.
func (p *poller) appActive(now mono.Time) bool { return now.Sub(p.lastPoll) < appIdle }

// sleepTime returns how long the goroutine that holds the poller may block on the network: until
// the deadline, or for maxPollSleep at most while there is traffic.
func (p *poller) sleepTime(now, deadline mono.Time) time.Duration {
	if now.Sub(p.lastEvent) < quietAfter {
		deadline = min(deadline, now.Add(maxPollSleep))
	}
	return max(deadline.Sub(now), 0)
}
