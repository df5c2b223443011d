package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// deadlines are the deadlines of a connection other than those of MPA.
type deadlines struct {
	timer         nic.Timer[Conn] // for the earliest deadline
	closeDeadline mono.Time       // end of the close timeout
	emptyWrites   emptyWrites
	pending       nic.FIFO[acceptance]
}

// acceptance is a number of ULPDUs that TCP accepts at a time.
type acceptance struct {
	at     mono.Time
	ulpdus int
}

// completeAccepted completes the requests whose ULPDUs TCP has accepted by now.
func (c *Conn) completeAccepted(now mono.Time) {
	for c.pending.Len() > 0 && !now.Before(c.pending.First().at) {
		a, _ := c.pending.Pop()
		if c.qp != nil {
			c.qp.stream.Accepted(a.ulpdus)
		}
	}
}

// tick handles the deadlines that have passed: of closing, of requests that TCP has accepted, of the
// next empty Write (see sendEmptyWrite), and of MPA.
func (c *Conn) tick(now mono.Time) {
	c.nic.clock = now
	if !now.Before(c.closeDeadline) {
		c.closeDeadline = mono.Never
		c.nic.Count.CloseTimeouts++
		c.abort(ErrCloseTimeout)
		return
	}
	c.completeAccepted(now)
	if !now.Before(c.emptyWrites.at) {
		c.sendEmptyWrite(now)
	}
	if c.mpa != nil && c.state != Closed {
		c.mpa.Tick(now)
		c.handleMPAEvents()
		c.advanceClose()
	}
}

// rearm sets the connection's timer to its earliest deadline; a closed connection has none.
func (c *Conn) rearm() {
	at := mono.Never
	if c.state != Closed {
		at = c.closeDeadline
		if c.mpa != nil {
			at = min(at, c.mpa.Deadline(), c.emptyWrites.at)
		}
		if c.pending.Len() > 0 {
			at = min(at, c.pending.First().at)
		}
	}
	c.nic.timers.Set(&c.timer, at)
}
