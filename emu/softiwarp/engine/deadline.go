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
}

// tick handles the deadlines that have passed: of closing, of the next empty Write (see
// sendEmptyWrite), and of MPA.
func (c *Conn) tick(now mono.Time) {
	c.nic.clock = now
	if !now.Before(c.closeDeadline) {
		c.closeDeadline = mono.Never
		c.nic.Count.CloseTimeouts++
		c.abort(ErrCloseTimeout)
		return
	}
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
	}
	c.nic.timers.Set(&c.timer, at)
}
