package iwarp

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// enhancedRequest returns the peer's default Request: enhanced, with an IRD and ORD of 16,
// peer-to-peer with every kind of RTR.
func enhancedRequest() startupFrame {
	return iwarp.Request().Depths(defaultOrd, defaultOrd).PeerToPeer(iwarp.RTRSend | iwarp.RTRWrite | iwarp.RTRRead)
}

// sendReply answers the device's Request in the same revision, with the requested depths and
// the cheapest of the offered RTRs.
func (hs *handshake) sendReply(edit func(startupFrame) startupFrame) {
	f := iwarp.Reply().Revision(iwarp.Val(hs.gotFrame.Rev))
	if e := hs.gotFrame.Enhanced; e != nil {
		f = f.Depths(iwarp.Val(e.ORD), min(iwarp.Val(e.IRD), defaultOrd))
		if iwarp.Val(e.PeerToPeer) {
			f = f.PeerToPeer(cheapestRTR(e))
		}
	}
	if edit != nil {
		f = edit(f)
	}
	hs.sendFrame(f)
}

// cheapestRTR returns the offered RTR that needs least from its receiver.
func cheapestRTR(e *iwarp.Enhanced) iwarp.RTR {
	switch {
	case e == nil:
		return 0
	case iwarp.Val(e.WriteRTR):
		return iwarp.RTRWrite
	case iwarp.Val(e.ReadRTR):
		return iwarp.RTRRead
	case iwarp.Val(e.SendRTR):
		return iwarp.RTRSend
	}
	return 0
}

// sendRTR sends the first message of an initiator: the negotiated RTR, or a zero-length Write.
func (c *conn) sendRTR() {
	switch cheapestRTR(c.deviceFrame.Enhanced) {
	case iwarp.RTRRead:
		c.send(iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, peerTO), 0, iwarp.At(peerSTag, 0)))
		c.wakeDevice()
		c.expect(iwarp.ReadResponse(peerSTag, peerTO, nil))
	case iwarp.RTRSend:
		c.send(iwarp.Send(c.nextSendMSN(), nil))
		c.wakeDevice()
		c.ExpectRecv(1, 0)
	default:
		c.send(iwarp.Write(peerSTag, 0, nil))
		c.wakeDevice()
	}
}

// wakeDevice sends zero-length Writes until the application has accepted: some devices do not
// process a message right after their Reply until another one arrives. A separate case checks
// that.
func (c *conn) wakeDevice() {
	c.sendEmptyWrite()
	for range wakeAttempts {
		if err := c.task.Wait(wakeInterval); !errors.Is(err, verbs.ErrTimeout) {
			break
		}
		c.sendEmptyWrite()
	}
	c.sendEmptyWrite() // wakes the device for messages that arrived before the accept
}

// sendEmptyWrite sends a zero-length Write, which has no effect.
func (c *conn) sendEmptyWrite() { c.send(iwarp.Write(peerSTag, 0, nil)) }

// The interval and number of zero-length Writes.
const (
	wakeInterval = 20 * time.Millisecond
	wakeAttempts = 50
)

// finishAccepts sends the first message on connections whose application is still in accept.
// With Linux's siw an accept cannot be cancelled before the first message, and the kernel panics
// if the stream ends before it.
func (h *host) finishAccepts() {
	for _, hs := range h.accepts {
		if hs.gotFrame.Rev == nil || !errors.Is(hs.task.Wait(shortWait), verbs.ErrTimeout) {
			continue // no Reply was sent, or the accept has returned
		}
		if hs.deviceFrame.Rev == nil {
			hs.enterFullOperation()
		}
		hs.wakeDevice()
	}
}

// recvRTR receives the RTR of a device that connected in the peer-to-peer model, and responds to
// a Read.
func (c *conn) recvRTR() {
	e := c.peerFrame.Enhanced
	if e == nil || !iwarp.Val(e.PeerToPeer) {
		return
	}
	switch g := c.expect(iwarp.Any()); g.Op() {
	case iwarp.OpReadRequest:
		c.send(iwarp.ReadResponseTo(g.Segment, nil))
	case iwarp.OpSend, iwarp.OpWrite:
	default:
		c.Fail("a zero-length message as RTR", "%v", g)
	}
}
