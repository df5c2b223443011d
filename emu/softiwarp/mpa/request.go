package mpa

import (
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// receiveRequest stores a Request that checkFrame has accepted, and returns EventRequest. Octets
// after the Request are an error. With the policy RefuseMarkers, it rejects a Request for markers
// by a Reply without depths and RTRs.
func (c *Conn) receiveRequest(f *wire.StartFrame) Event {
	if len(c.in) > 0 {
		return c.fail(wire.TermMPAFrame, CloseNow, ErrEarlyOctets)
	}
	c.count.RequestsTaken++
	c.request = *f
	c.request.PrivateData = nil // only the event has it
	e, private, enhanced := f.Split()
	c.params = Params{
		Revision: f.Revision,
		Enhanced: enhanced,
		PeerIRD:  e.IRD, PeerORD: e.ORD,
		PeerToPeer: e.PeerToPeer, RTR: rtrOf(&e),
	}
	c.state = requestReceived
	if f.Markers && c.policy.RefuseMarkers {
		c.sendReject(wire.Enhanced{}, nil)
		c.countFailure(ErrMarkersUnwanted)
		return Event{Kind: EventError, Reaction: CloseNow, Term: wire.TermMPAFrame, Err: ErrMarkersUnwanted}
	}
	return Event{Kind: EventRequest, Params: &c.params, PrivateData: private}
}

// Accept accepts the Request. From now on FPDUs are received; the policy ResponderSends decides
// when they may be sent (see MaySend). With the policy HoldFirst, the first FPDUs are processed
// only when more data has arrived, unless the model is peer-to-peer.
func (c *Conn) Accept(p AcceptParam) error {
	if err := c.checkAnswer(p.PrivateData); err != nil {
		return err
	}
	f := c.reply()
	f.CRC = f.CRC || c.wantsCRC()
	f.Markers = c.cfg.Markers
	// Revision 0, of the RDMA Consortium, always has markers and CRCs.
	consortium := f.Revision == wire.RevisionConsortium && c.cfg.Consortium
	if consortium {
		f.CRC, f.Markers = true, true
	}
	e := c.negotiateReply(p)
	c.enterFullOperation(&f, &c.request) // before the Reply, after which the peer may send
	c.sendBlocked = c.policy.ResponderSends < AfterReply
	c.holdNext = c.policy.HoldFirst && !c.params.PeerToPeer
	c.sendFrame(&f, &e, p.PrivateData)
	c.count.Accepted++
	return nil
}

// Reject rejects the Request, with the depths that the responder would have accepted. Once the
// Reply is written to the stream, the owner may close the stream or leave that to the initiator.
func (c *Conn) Reject(p AcceptParam) error {
	if err := c.checkAnswer(p.PrivateData); err != nil {
		return err
	}
	c.sendReject(enhancedData(c.params.PeerToPeer, c.offeredRTR(c.params.RTR), p.IRD, p.ORD), p.PrivateData)
	c.count.Rejected++
	return nil
}

// sendReject queues a Reply with the reject flag, and ends the connection.
func (c *Conn) sendReject(e wire.Enhanced, private []byte) {
	f := c.reply()
	f.Reject = true
	c.sendFrame(&f, &e, private)
	c.state = finished
}

// checkAnswer returns an error if no Request waits for Accept or Reject, or if the private data
// of the Reply is too long.
func (c *Conn) checkAnswer(private []byte) error {
	if c.state != requestReceived {
		return ErrState
	}
	return checkPrivateData(private, c.params.Enhanced)
}

// reply returns a Reply with the revision of the Request. It requests CRCs if the Request does. The
// policy EchoFlags also repeats the Request's reject, enhanced and reserved flags.
func (c *Conn) reply() wire.StartFrame {
	f := wire.StartFrame{Reply: true, Revision: c.request.Revision, Enhanced: c.params.Enhanced, CRC: c.request.CRC}
	if c.policy.EchoFlags {
		f.Reject, f.Enhanced, f.Reserved = c.request.Reject, c.request.Enhanced, c.request.Reserved
	}
	return f
}
