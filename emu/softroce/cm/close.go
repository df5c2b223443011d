package cm

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// Close ends a connection or SIDR lookup in any state: it rejects a pending request, or
// disconnects an established connection. The ID is then invalid and has no more
// events.
func (a *Agent) Close(now mono.Time, id ConnID) error {
	c := a.conns[id]
	if c == nil || c.closed {
		_, err := a.lookUp("close", id)
		return err
	}
	c.closed = true
	switch c.state {
	case StateREQSent, StateMRAREQRcvd:
		a.rejectTimeout(c)
		a.release(c)
	case StateREQRcvd, StateMRAREQSent, StateREPRcvd, StateMRAREPSent, StateREPSent, StateMRAREPRcvd:
		return a.reject(now, c, wire.ReasonConsumer, nil, nil)
	case StateEstablished:
		return a.startDREQ(now, c, nil)
	case StateSIDRREQSent:
		a.release(c)
	case StateSIDRREQRcvd:
		return a.answerSIDR(now, c, SIDRReplyParam{Status: wire.SIDRRejected})
	}
	return nil
}
