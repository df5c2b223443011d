package random

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Result is the result of one end.
type Result struct {
	Side Side
	// Elapsed is the time from the first request to the last completion.
	Elapsed time.Duration
	Conns   []ConnResult
	// Counters are the increments of the device counters, for all ends that share the device.
	Counters []verbs.Counter
}

// ConnResult is the result of one end on one connection.
type ConnResult struct {
	Service  Service
	Sent     Requests
	Received Arrivals
}

// Requests counts the requests of an end.
type Requests struct {
	Posted    int
	Completed int   // with success
	Bytes     int64 // of completed requests, in either direction
	// Failed is the completion status that ended the connection early, or WCSuccess.
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

// Received returns the messages and bytes received so far.
func (e *End) Received() (messages, bytes uint64) {
	for _, c := range e.conns {
		t := c.incoming.counts()
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
	for _, c := range e.conns {
		s := &c.outgoing
		r.Conns = append(r.Conns, ConnResult{
			Service:  c.spec.Service,
			Sent:     Requests{Posted: s.posted, Completed: s.succeeded, Bytes: s.bytes, Failed: s.failStatus},
			Received: c.incoming.counts(),
		})
	}
	r.Counters = traffic.CountersSince(e.countersBefore, e.env.Device.Counters())
	return r
}

// waitForLatePackets receives for latePacketTime what may still arrive on unreliable connections,
// whose completions do not mean that packets have arrived.
func (e *End) waitForLatePackets() error {
	const latePacketTime = 20 * time.Millisecond // in which packets of unreliable connections may still arrive
	if !e.hasUnreliableConns() {
		return nil
	}
	until := e.proc.Now() + latePacketTime
	for now := e.proc.Now(); now < until; now = e.proc.Now() {
		n, err := e.poll()
		if err == nil && n == 0 {
			err = e.wait(until - now)
		}
		if err != nil {
			return err
		}
	}
	_, err := e.poll()
	return err
}

// verify checks that no receive was flushed without a failure, then memory, and the words that a
// side's connections share for atomics. It drains the queue pairs, and waits for the peer's drain.
func (e *End) verify() error {
	e.endedAt = max(e.lastCompletion, e.startedAt)
	for i, c := range e.conns {
		if c.flushes > 0 && !c.outgoing.qpFailed && !c.errorExpected {
			return c.violation(e.side.Peer(), "no flush without a failure", fmt.Sprintf("%d receives flushed", c.flushes))
		}
		if err := c.incoming.verify(&e.peerDone.Conns[i]); err != nil {
			return err
		}
	}
	if e.w.Traits.ConnectsByCM {
		// The peer may disconnect once it has our words, which moves our queue pairs to error.
		for _, c := range e.conns {
			c.errorExpected = true
		}
	}
	if err := e.sendControl(controlMessage{Kind: controlWords, Words: e.words.values()}); err != nil {
		return err
	}
	msg, err := e.expectControl(controlWords)
	if err != nil {
		return err
	}
	if err := e.words.check(msg.Words); err != nil {
		return err
	}
	if err := e.drain(); err != nil {
		return err
	}
	if err := e.sendControl(controlMessage{Kind: controlClose}); err != nil {
		return err
	}
	_, err = e.expectControl(controlClose)
	return err
}

// drain moves the queue pairs to the error state and waits until their receives are
// flushed. Shared receives stay posted.
func (e *End) drain() error {
	for _, c := range e.conns {
		c.errorExpected = true
		if err := c.ToError(); err != nil {
			return err
		}
		for c.ring != nil && c.ring.Outstanding() > 0 {
			if err := e.waitCompletions(); err != nil {
				return err
			}
		}
	}
	for { // other completions, until there are none
		if n, err := e.poll(); err != nil || n == 0 {
			return err
		}
	}
}

// Violation is a broken guarantee of the service.
type Violation struct { //nolint:errname // a finding, not a failure
	Kind  traffic.ViolationKind
	Where string // connection, direction and request
	Want  string
	Got   string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: %s; want %s", v.Where, v.Got, v.Want)
}

// as sets the kind of the violation.
func (v *Violation) as(kind traffic.ViolationKind) *Violation {
	v.Kind = kind
	return v
}

// violation returns a Violation of kind Completion about the connection's requests from a side.
func (c *conn) violation(from Side, want, got string) *Violation {
	return &Violation{Kind: traffic.Completion, Where: c.describe(from), Want: want, Got: got}
}

// describe names the connection and the side whose requests are meant, in errors.
func (c *conn) describe(from Side) string {
	return fmt.Sprintf("connection %d (%v), %v to %v", c.index, c.spec.Service, from, from.Peer())
}

// direction is the requests of one side on a connection.
type direction struct {
	conn *conn
	plan plan
	from Side
}

// noRequest is the number of no request.
const noRequest = -1

// violation returns a Violation of kind Completion about request n, or about none if noRequest.
func (d *direction) violation(n int, want, got string) *Violation {
	v := d.conn.violation(d.from, want, got)
	if n != noRequest {
		v.Where = d.describe(n)
	}
	return v
}

// describe names request n in errors.
func (d *direction) describe(n int) string {
	return fmt.Sprintf("%s, request %d (%v)", d.conn.describe(d.from), n, &d.plan.ops[n])
}

// incoming is the requests of the peer on a connection, and how they arrived.
type incoming struct {
	direction
	want     []byte // room for an expected message
	arrivals Arrivals
}

// newIncoming returns the common part of the checkers, for plan p of the peer.
func newIncoming(c *conn, p plan) incoming {
	return incoming{direction: direction{c, p, c.end.side.Peer()}, want: make([]byte, c.spec.MaxBytes)}
}
