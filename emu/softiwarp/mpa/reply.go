package mpa

import "github.com/fabrictest/fabrictest/emu/iwarp/wire"

// receiveReply handles a Reply that checkFrame has accepted. It starts full operation, or ends the
// connection if the Reply rejects it, if the negotiation fails, or if the Reply requests markers
// and the policy RefuseMarkers forbids them.
func (c *Conn) receiveReply(f *wire.StartFrame) Event {
	e, private, enhanced := f.Split()
	s := &c.params
	s.Revision, s.Enhanced = f.Revision, enhanced
	s.PeerIRD, s.PeerORD = e.IRD, e.ORD
	if f.Reject {
		c.count.Rejected++
		c.state = finished
		c.out.drop()
		return Event{Kind: EventRejected, Reaction: CloseNow, Params: s, PrivateData: private}
	}
	if f.Markers && c.policy.RefuseMarkers {
		return c.fail(wire.TermMPAFrame, CloseNow, ErrMarkersUnwanted)
	}
	// Before the negotiation, which may fail: the Terminate is an FPDU.
	c.enterFullOperation(&c.request, f)
	if enhanced {
		if term, err := c.applyReply(&e); err != nil {
			return c.fail(term, TerminateThenClose, err)
		}
	}
	c.count.Accepted++
	return Event{Kind: EventAccepted, Params: s, PrivateData: private}
}
