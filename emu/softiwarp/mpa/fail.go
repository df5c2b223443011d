package mpa

import (
	"errors"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// fail ends reception, counts the error, and returns its event. With TerminateThenClose one more
// FPDU, the Terminate, may be sent; otherwise queued output is dropped.
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

// countFailure increments the counter of an error, or BadFrames if the error has none of its own.
func (c *Conn) countFailure(why error) {
	is := func(errs ...error) bool {
		return slices.ContainsFunc(errs, func(err error) bool { return errors.Is(why, err) })
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

// adviseFallback reports, and counts, whether a connection may have failed because the peer does
// not support the enhanced Request, so that a Request without enhanced data may succeed. With the
// policy NoFallback it returns false, like devices that do not try again.
func (c *Conn) adviseFallback() bool {
	advised := c.state == waitReply && c.request.Enhanced && !c.policy.NoFallback
	if advised {
		c.count.Fallbacks++
	}
	return advised
}

// setDeadline sets the deadline to timeout after now. It does nothing for a timeout of 0 or less,
// which means no limit.
func (c *Conn) setDeadline(now mono.Time, timeout time.Duration) {
	if timeout > 0 {
		c.deadline = now.Add(timeout)
	}
}
