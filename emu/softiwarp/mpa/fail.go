package mpa

import (
	"errors"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// fail ends reception and counts the error.
func (c *Conn) fail(term wire.TermError, then Reaction, why error) Event {
	c.deadline = mono.Never
	c.in, c.heldInput = nil, nil
	if then == TerminateThenClose {
		c.state = terminating
	} else {
		c.state = finished
		c.out.drop()
	}
	c.countFailure(why)
	return Event{Kind: EventError, Reaction: then, Term: term, Err: why}
}

func (c *Conn) countFailure(why error) {
	is := func(one ...error) bool {
		return slices.ContainsFunc(one, func(err error) bool { return errors.Is(why, err) })
	}
	n := &c.count.BadFrames
	switch {
	case is(ErrRevision):
		n = &c.count.BadRevisions
	case is(ErrIRD, ErrModel, ErrNoRTR):
		n = &c.count.BadNegotiations
	case is(ErrCRC):
		n = &c.count.BadCRCs
	case is(ErrMarker):
		n = &c.count.BadMarkers
	case is(ErrTruncatedFrame, ErrTruncatedFPDU):
		n = &c.count.Truncated
	case is(ErrLost, ErrEOF):
		n = &c.count.Lost
	case is(ErrTimeout, ErrStalledFPDU):
		n = &c.count.Timeouts
	}
	*n++
}

// fallback reports whether a peer that has closed the stream may have rejected the enhanced
// Request.
func (c *Conn) fallback() bool {
	advised := c.state == waitReply && c.request.Enhanced && !c.policy.NoFallback
	if advised {
		c.count.Fallbacks++
	}
	return advised
}

func (c *Conn) setDeadline(now mono.Time, timeout time.Duration) {
	if timeout > 0 {
		c.deadline = now.Add(timeout)
	}
}
