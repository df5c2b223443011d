package iwarp

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// enhancedRequest is the peer's ordinary Request: enhanced, 16 reads each way, peer-to-peer
// with every kind of RTR.
func enhancedRequest() startupFrame {
	return iwarp.Request().Depths(defaultOrd, defaultOrd).PeerToPeer(iwarp.RTRSend | iwarp.RTRWrite | iwarp.RTRRead)
}

// sendReply answers the device's Request in its own format: as many reads as it wants, and
// of the RTRs that it offers the one that asks least.
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

// cheapestRTR is the RTR that asks least of who takes it, of those that a frame offers.
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

// sendRTR sends the first message of an initiator: the agreed one, or a write of no
// octets where none is.
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

// wakeDevice sends writes of no octets after the first message. There are devices that
// overlook what comes right after their Reply until more comes, and that for as long as
// their application takes to accept; which they are, one case says, and not every one. It
// returns when the application has accepted, or does not.
func (c *conn) wakeDevice() {
	c.sendEmptyWrite()
	for range wakeAttempts {
		if err := c.task.Wait(wakeInterval); !errors.Is(err, verbs.ErrTimeout) {
			break
		}
		c.sendEmptyWrite()
	}
	c.sendEmptyWrite() // for what came before it had accepted
}

// sendEmptyWrite sends a write of no octets, which no device has anything to say to.
func (c *conn) sendEmptyWrite() { c.send(iwarp.Write(peerSTag, 0, nil)) }

// How often a device is woken, and for how long at most.
const (
	wakeInterval = 20 * time.Millisecond
	wakeAttempts = 50
)

// finishAccepts gives a device whose application still accepts what it waits for, so that it has a
// connection that can be closed. Linux's siw has no other way out: an application that wants to
// give up sleeps until the first message comes, and the kernel panics if the stream ends
// was that.
func (h *host) finishAccepts() {
	for _, hs := range h.accepts {
		if hs.gotFrame.Rev == nil || !errors.Is(hs.task.Wait(shortWait), verbs.ErrTimeout) {
			continue // it has sent no Reply, or needs none any more
		}
		if hs.deviceFrame.Rev == nil {
			hs.enterFullOperation()
		}
		hs.wakeDevice()
	}
}

// recvRTR takes the first message of a device that connected in the peer-to-peer
// model, and answers it if need be.
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
		c.Fail("a message of no octets first", "%v", g)
	}
}
