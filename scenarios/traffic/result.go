package traffic

import (
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Result is what one end has seen.
type Result struct {
	Side Side
	// Elapsed is the time from the first request to the last completion.
	Elapsed time.Duration
	Lanes   []LaneResult
	// Counters are what the device counted meanwhile; if several ends share a
	// device, for all of them.
	Counters []verbs.Counter
}

// LaneResult is what one end has seen of one lane.
type LaneResult struct {
	Service  Service
	Sent     Requests
	Received Arrivals
}

// Requests counts what an end posted.
type Requests struct {
	Posted    int
	Completed int   // with success
	Bytes     int64 // moved by those, in either direction
	// Failed is the completion status that ended the lane early, WCSuccess if
	// none did.
	Failed verbs.WCStatus
}

// Arrivals counts what became of the peer's requests.
type Arrivals struct {
	Delivered  int // each counted once
	Lost       int
	Duplicated int
	Reordered  int
	Partial    int // lost, but for parts of a write
	Bytes      int64
}

// Counter returns the difference of a counter by name, 0 if there is none.
func (r *Result) Counter(name string) uint64 {
	for _, c := range r.Counters {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}

// Received is how many messages and bytes have arrived so far.
func (e *End) Received() (messages, bytes uint64) {
	for _, l := range e.lanes {
		t := l.in.tally()
		messages += uint64(t.Delivered)
		bytes += uint64(t.Bytes)
	}
	return messages, bytes
}

// Result is what the end has seen, or had seen when Run broke off.
func (e *End) Result() *Result {
	r := &Result{Side: e.side, Elapsed: max(0, e.lastDone-e.began)}
	if e.ended > 0 {
		r.Elapsed = e.ended - e.began
	}
	for _, l := range e.lanes {
		s := &l.out
		r.Lanes = append(r.Lanes, LaneResult{
			Service:  l.spec.Service,
			Sent:     Requests{Posted: s.posted, Completed: s.good, Bytes: s.bytes, Failed: s.failed},
			Received: l.in.tally(),
		})
	}
	before := map[string]uint64{}
	for _, c := range e.before {
		before[c.Name] = c.Value
	}
	for _, c := range e.env.Device.Counters() {
		r.Counters = append(r.Counters, verbs.Counter{Name: c.Name, Value: c.Value - before[c.Name]})
	}
	return r
}
