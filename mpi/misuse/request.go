package misuse

import (
	"fmt"

	"github.com/fabrictest/fabrictest/explore"
)

// Request is a request of the program.
type Request struct {
	rank       *Rank
	place      explore.Place // that created it
	started    explore.Place // the last Start
	persistent bool
	active     bool
	op         *Op // of an active send or receive; nil for others
}

// NewRequest records a request, which is active unless it is persistent. op is its send or receive, or nil.
func (r *Rank) NewRequest(persistent bool, op *Op, place explore.Place) *Request {
	r.tick()
	q := &Request{rank: r, place: place, persistent: persistent, active: !persistent, op: op}
	r.requests = append(r.requests, q)
	return q
}

// Started records a Start.
func (q *Request) Started(op *Op, place explore.Place) {
	q.rank.tick()
	q.active, q.op, q.started = true, op, place
}

// Finished records that Wait or Test has completed the request.
func (q *Request) Finished() {
	q.rank.tick()
	q.active, q.op = false, nil
	if !q.persistent {
		q.rank.requests = remove(q.rank.requests, q)
	}
}

// Freed records a Free. A send may be freed while it is active, as its completion is known otherwise.
func (q *Request) Freed(place explore.Place) {
	q.rank.tick()
	isSend := q.op != nil && q.op.kind == sendOp
	if q.active && !isSend {
		q.rank.c.report(RequestFreed, "nothing says when the operation is complete", q.place, place)
	}
	q.rank.requests = remove(q.rank.requests, q)
}

// reportLeft reports what is left when all programs have returned.
func (c *Checker) reportLeft() {
	c.refresh()
	paired := c.pairs()
	for _, r := range c.ranks {
		for _, q := range r.requests {
			c.reportRequest(q, paired)
		}
		for _, o := range r.matched {
			c.report(MatchedLost, fmt.Sprintf("rank %d has matched the message of rank %d with Mprobe and not received it", r.rank, o.partner.source()), o.Place)
		}
		for _, m := range r.comms {
			if m.place.Line > 0 && !m.freed {
				c.report(CommLeak, m.name, m.place)
			}
		}
		for _, w := range r.windows {
			w.reportOpen()
		}
	}
	for _, r := range c.ranks {
		for _, w := range r.windows {
			w.reportLeak()
		}
	}
	for to, all := range c.sends {
		for _, s := range all {
			if !paired[s] {
				c.report(MessageLost, fmt.Sprintf("%d bytes from rank %d to rank %d with tag %d on %s", s.Bytes, s.rank.rank, to, s.Tag, s.Comm.name), s.Place)
			}
		}
	}
}

// source returns the rank of a send; Any if it is not known.
func (o *Op) source() int {
	if o == nil {
		return Any
	}
	return o.rank.rank
}

// reportRequest reports a request that is left. A send whose message is lost is reported as such only.
func (c *Checker) reportRequest(q *Request, paired map[*Op]bool) {
	o := q.op
	switch {
	case q.active && o != nil && o.kind == recvOp && !o.done && !paired[o]:
		c.report(ReceiveLost, "rank "+fmt.Sprint(q.rank.rank)+" waits for "+o.describe(), o.Place)
	case q.active && o != nil && o.kind == sendOp && c.isUnmatched(o) && !paired[o]:
	case q.active && q.persistent:
		c.report(RequestLost, "the request was started and neither Wait nor Test has completed it", q.place, q.started)
	case q.active:
		c.report(RequestLost, "neither Wait nor Test has completed the request", q.place)
	case q.persistent && q.started.Line == 0:
		c.report(NeverStarted, "the request was created and never started", q.place)
	case q.persistent:
		c.report(NeverFreed, "the request was never freed", q.place)
	}
}

// isUnmatched reports whether no receive is known to have matched a send.
func (c *Checker) isUnmatched(o *Op) bool {
	for _, s := range c.sends[o.Peer] {
		if s == o {
			return true
		}
	}
	return false
}
