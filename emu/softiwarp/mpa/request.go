package mpa

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// takeRequest hands a valid Request up.
func (c *Conn) takeRequest(f *wire.StartFrame) Event {
	if len(c.in) > 0 {
		return c.fail(wire.TermMPAFrame, CloseNow, ErrEarlyOctets)
	}
	c.count.RequestsTaken++
	c.request = *f
	e, private, enhanced := f.Split()
	c.params = Params{
		Revision: f.Revision,
		Enhanced: enhanced,
		PeerIRD:  e.IRD, PeerORD: e.ORD,
		PeerToPeer: e.PeerToPeer, RTR: rtrOf(&e),
	}
	c.state = asked
	if f.Markers && c.q.RefusesMarkers {
		c.refuse(enhancedData(false, 0, 0, 0), nil)
		c.countFailure(ErrMarkersUnwanted)
		return Event{Kind: EventError, Reaction: CloseNow, Term: wire.TermMPAFrame, Err: ErrMarkersUnwanted}
	}
	return Event{Kind: EventRequest, Params: &c.params, PrivateData: private}
}

// Accept answers a Request with a Reply that accepts. FPDUs are taken from now
// on; see MaySend for when they may be sent. c.Params has what is settled.
func (c *Conn) Accept(now mono.Time, p AcceptParam) error {
	if err := c.checkAnswer(p.PrivateData); err != nil {
		return err
	}
	f := c.reply()
	f.CRC = f.CRC || c.wantsCRC() && !c.q.NeverRaisesCRC
	f.Markers = c.cfg.Markers
	consortium := f.Revision == wire.RevisionConsortium && c.cfg.Consortium
	if consortium {
		f.CRC, f.Markers = true, true
	}
	e := c.answer(p)
	request := c.request
	c.enterFull(&f, &request) // before the Reply, which is what lets the peer send
	c.fenced = !c.q.NoFence
	c.stuck = c.q.FirstFPDUStuck && !c.params.PeerToPeer // siw does wait for an RTR
	c.sendFrame(&f, &e, p.PrivateData)
	c.request.PrivateData = nil
	c.count.Accepted++
	return nil
}

// Reject answers a Request with a Reply that refuses. Close the stream, or leave
// that to the initiator, when Over says so.
func (c *Conn) Reject(now mono.Time, private []byte) error {
	return c.RejectDepths(now, AcceptParam{PrivateData: private})
}

// RejectDepths is Reject that tells the initiator which depths it would have
// taken.
func (c *Conn) RejectDepths(now mono.Time, p AcceptParam) error {
	if err := c.checkAnswer(p.PrivateData); err != nil {
		return err
	}
	c.refuse(enhancedData(c.params.PeerToPeer, c.offer(c.params.RTR), p.IRD, p.ORD), p.PrivateData)
	c.count.Rejected++
	return nil
}

func (c *Conn) refuse(e wire.Enhanced, private []byte) {
	f := c.reply()
	f.Reject = true
	c.sendFrame(&f, &e, private)
	c.request.PrivateData = nil
	c.state = over
}

func (c *Conn) checkAnswer(private []byte) error {
	if c.state != asked {
		return ErrState
	}
	return checkPrivateData(private, c.params.Enhanced)
}

// reply begins a Reply: of the Request's revision, enhanced if that is, and with
// CRCs if it asked for them. (They are used then whatever the Reply says; but it
// had better say so.)
func (c *Conn) reply() wire.StartFrame {
	f := wire.StartFrame{Reply: true, Revision: c.request.Revision, Enhanced: c.params.Enhanced, CRC: c.request.CRC}
	if c.q.EchoesFlags {
		f.Reject, f.Enhanced, f.Reserved = c.request.Reject, c.request.Enhanced, c.request.Reserved
	}
	return f
}
