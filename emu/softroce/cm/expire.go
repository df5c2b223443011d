package cm

import (
	"github.com/fabrictest/fabrictest/emu/mono"
)

// expire does what is due when c's timer runs out.
func (a *Agent) expire(now mono.Time, c *conn) {
	if c.state == StateTimeWait {
		a.leaveTimeWait(c)
		return
	}
	if c.retries > 0 {
		c.retries--
		a.tryAgain(now, c)
		return
	}
	e := Event{Kind: EventTimedOut, State: c.state}
	switch c.state {
	case StateREQSent, StateMRAREQRcvd:
		a.giveUp(c)
		e.Final = true
	case StateSIDRREQSent:
		e.Final = true
	case StateREPSent, StateMRAREPRcvd:
		a.giveUp(c)
	}
	a.notify(c, e)
	if e.Final {
		a.release(c)
	} else {
		a.enterTimeWait(now, c)
	}
}

// tryAgain repeats the message that c waits an answer for. An MRA put off one
// wait, not all of them.
func (a *Agent) tryAgain(now mono.Time, c *conn) {
	switch c.state {
	case StateMRAREQRcvd:
		c.state = StateREQSent
	case StateMRAREPRcvd:
		c.state = StateREPSent
	}
	a.repeat(c)
	a.timers.arm(c, now.Add(c.timeout))
}

func (a *Agent) leaveTimeWait(c *conn) {
	a.notify(c, Event{Kind: EventTimeWaitExit, Final: true})
	a.release(c)
}
