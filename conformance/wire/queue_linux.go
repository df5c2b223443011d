package wire

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// queue has received packets until Recv returns them.
type queue struct {
	name   string // of the wire, for errors
	epoch  time.Time
	signal chan struct{} // a packet is queued
	closed chan struct{}
	byTime bool // sort packets by their receive time, for wires of several sockets

	mu            sync.Mutex
	discardBefore time.Time // packets received before are ignored
	arrivals      []arrival
	dropped       uint64
}

// arrival is a received packet, or the error of one that was changed on its way from the link.
type arrival struct {
	conformance.Frame
	seen time.Time
	err  error
}

const maxQueued = 1 << 15 // packets

// newQueue returns a queue. name is for errors; epoch is time 0 of the packets, now if it is zero.
func newQueue(name string, epoch time.Time) *queue {
	now := time.Now()
	if epoch.IsZero() {
		epoch = now
	}
	return &queue{name: name, epoch: epoch, signal: make(chan struct{}, 1), closed: make(chan struct{}), discardBefore: now}
}

// Epoch is time 0 of received frames.
func (q *queue) Epoch() time.Time { return q.epoch }

// add adds a packet, sorted by receive time if q.byTime. It ignores packets received before the
// last discard, and counts those beyond maxQueued as dropped.
func (q *queue) add(a arrival) {
	a.At = a.seen.Sub(q.epoch)
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.seen.Before(q.discardBefore) {
		return
	}
	if len(q.arrivals) >= maxQueued {
		q.dropped++
		return
	}
	i := len(q.arrivals)
	for q.byTime && i > 0 && q.arrivals[i-1].seen.After(a.seen) {
		i--
	}
	q.arrivals = slices.Insert(q.arrivals, i, a)
	q.wake()
}

// wake makes a blocked Recv look at the queue.
func (q *queue) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// Recv implements conformance.Wire. It returns an error if packets were dropped.
func (q *queue) Recv(timeout time.Duration) (conformance.Frame, error) {
	var expired <-chan time.Time // nil, and therefore never ready, without a timeout
	if timeout >= 0 {
		expired = time.After(timeout)
	}
	for timedOut := false; ; {
		if a, ok := q.next(); ok {
			return a.Frame, a.err
		}
		if timedOut {
			return conformance.Frame{}, fmt.Errorf("no packet from the device: %w", verbs.ErrTimeout)
		}
		select {
		case <-q.signal:
		case <-q.closed:
			return conformance.Frame{}, fmt.Errorf("%s: %w", q.name, net.ErrClosed)
		case <-expired:
			timedOut = true // queued packets take precedence
		}
	}
}

// next removes and returns the first arrival; ok is false if there is none. Once packets were
// dropped, and until discard, it returns an arrival with only an error.
func (q *queue) next() (a arrival, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped > 0 {
		a.err = fmt.Errorf("%s: %d packets were dropped because they were not read in time", q.name, q.dropped)
		return a, true
	}
	if len(q.arrivals) == 0 {
		return a, false
	}
	a, q.arrivals = q.arrivals[0], q.arrivals[1:]
	if len(q.arrivals) > 0 {
		q.wake() // for a concurrent Recv
	}
	return a, true
}

// addDropped adds n to the number of dropped packets.
func (q *queue) addDropped(n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped += n
}

// discard discards received packets and the count of dropped ones.
func (q *queue) discard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.discardBefore, q.arrivals, q.dropped = time.Now(), nil, 0
}
