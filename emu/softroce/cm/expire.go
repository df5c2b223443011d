package cm

import "github.com/fabrictest/fabrictest/emu/mono"

// expire handles an expired timer: it retransmits, gives up, or leaves time wait. A connection
// whose request it gives up ends at once (Final); a connection in a later state enters time wait.
func (a *Agent) expire(now mono.Time, c *conn) {
	if c.state == StateTimeWait {
		a.notify(c, Event{Kind: EventTimeWaitExit, Final: true})
		a.release(c)
		return
	}
	if c.retries > 0 {
		c.retries--
		a.retransmit(now, c)
		return
	}
	e := Event{Kind: EventTimedOut, State: c.state}
	switch c.state {
	case StateREQSent, StateMRAREQRcvd:
		a.rejectTimeout(c)
		e.Final = true
	case StateSIDRREQSent:
		e.Final = true
	case StateREPSent, StateMRAREPRcvd:
		a.rejectTimeout(c)
	}
	a.notify(c, e)
	if e.Final {
		a.release(c)
	} else {
		a.enterTimeWait(now, c)
	}
}

// retransmit retransmits the unanswered message of c. An MRA delays only one retransmission, so c
// also leaves the state into which an MRA has put it.
func (a *Agent) retransmit(now mono.Time, c *conn) {
	switch c.state {
	case StateMRAREQRcvd:
		c.state = StateREQSent
	case StateMRAREPRcvd:
		c.state = StateREPSent
	}
	a.resend(c)
	a.armTimer(c, now.Add(c.timeout))
}
