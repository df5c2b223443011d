package iwarp

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// request is the peer's ordinary Request: enhanced, 16 reads each way, peer-to-peer
// with every kind of RTR.
func request() startup {
	return iwarp.Request().Depths(defaultOrd, defaultOrd).PeerToPeer(iwarp.RTRSend | iwarp.RTRWrite | iwarp.RTRRead)
}

// reply answers the device's Request in its own format: as many reads as it wants, and
// of the RTRs that it offers the one that asks least.
func (st *start) reply(edit func(startup) startup) {
	f := iwarp.Reply().Revision(iwarp.Val(st.got.Rev))
	if e := st.got.Enhanced; e != nil {
		f = f.Depths(iwarp.Val(e.ORD), min(iwarp.Val(e.IRD), defaultOrd))
		if iwarp.Val(e.PeerToPeer) {
			f = f.PeerToPeer(easiest(e))
		}
	}
	if edit != nil {
		f = edit(f)
	}
	st.say(f)
}

// easiest is the RTR that asks least of who takes it, of those that a frame offers.
func easiest(e *iwarp.Enhanced) iwarp.RTR {
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
	switch easiest(c.device.Enhanced) {
	case iwarp.RTRRead:
		c.send(iwarp.ReadRequest(c.nextRequest(), iwarp.At(peerSTag, peerTO), 0, iwarp.At(peerSTag, 0)))
		c.wake()
		c.expect(iwarp.ReadResponse(peerSTag, peerTO, nil))
	case iwarp.RTRSend:
		c.send(iwarp.Send(c.nextSend(), nil))
		c.wake()
		c.ExpectRecv(1, 0)
	default:
		c.send(iwarp.Write(peerSTag, 0, nil))
		c.wake()
	}
}

// wake sends writes of no octets behind the first message. There are devices that
// overlook what comes right behind their Reply until more comes, and that for as long as
// their program takes to accept; which they are, one case says, and not every one. It
// returns when the program has accepted, or does not.
func (c *conn) wake() {
	c.nudge()
	for range wakings {
		if err := c.task.Wait(wakeEvery); !errors.Is(err, verbs.ErrTimeout) {
			break
		}
		c.nudge()
	}
	c.nudge() // for what came before it had accepted
}

// nudge sends a write of no octets, which no device has anything to say to.
func (c *conn) nudge() { c.send(iwarp.Write(peerSTag, 0, nil)) }

// How often a device is woken, and for how long at most.
const (
	wakeEvery = 20 * time.Millisecond
	wakings   = 50
)

// leave gives a device whose program still accepts what it waits for, so that it has a
// connection that can be closed. Linux's siw has no other way out: a program that wants to
// give up sleeps until the first message comes, and the kernel panics if the stream ends
// before that.
func (h *host) leave() {
	for _, st := range h.accepting {
		if st.got.Rev == nil || !errors.Is(st.task.Wait(soon), verbs.ErrTimeout) {
			continue // it has sent no Reply, or needs none any more
		}
		if st.device.Rev == nil {
			st.full()
		}
		st.wake()
	}
}

// takeRTR takes the first message of a device that connected in the peer-to-peer
// model, and answers it if need be.
func (c *conn) takeRTR() {
	e := c.peer.Enhanced
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
