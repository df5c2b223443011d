package random

import (
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Result is the result of one end.
type Result struct {
	Side Side
	// Elapsed is the time from the first request to the last completion.
	Elapsed time.Duration
	Lanes   []LaneResult
	// Counters are the increments of the device counters, for all ends that share the
	// device.
	Counters []verbs.Counter
}

// LaneResult is the result of one end on one lane.
type LaneResult struct {
	Service  Service
	Sent     Requests
	Received Arrivals
}

// Requests counts the requests of an end.
type Requests struct {
	Posted    int
	Completed int   // with success
	Bytes     int64 // of completed requests, in either direction
	// Failed is the completion status that ended the lane early, or WCSuccess.
	Failed verbs.WCStatus
}

// Arrivals counts the requests of the peer by outcome.
type Arrivals struct {
	Delivered  int // without duplicates
	Lost       int
	Duplicated int
	Reordered  int
	Partial    int // of lost writes, those that arrived in part
	Bytes      int64
}

// Counter returns the increment of a counter; 0 if it does not exist.
func (r *Result) Counter(name string) uint64 {
	for _, c := range r.Counters {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}

// Received returns the messages and bytes received so far.
func (e *End) Received() (messages, bytes uint64) {
	for _, l := range e.lanes {
		t := l.incoming.counts()
		messages += uint64(t.Delivered)
		bytes += uint64(t.Bytes)
	}
	return messages, bytes
}

// Result returns the result, also after Run has failed.
func (e *End) Result() *Result {
	r := &Result{Side: e.side, Elapsed: max(0, e.lastCompletion-e.startedAt)}
	if e.endedAt > 0 {
		r.Elapsed = e.endedAt - e.startedAt
	}
	for _, l := range e.lanes {
		s := &l.outgoing
		r.Lanes = append(r.Lanes, LaneResult{
			Service:  l.spec.Service,
			Sent:     Requests{Posted: s.posted, Completed: s.succeeded, Bytes: s.bytes, Failed: s.failStatus},
			Received: l.incoming.counts(),
		})
	}
	r.Counters = traffic.CountersSince(e.countersBefore, e.env.Device.Counters())
	return r
}
