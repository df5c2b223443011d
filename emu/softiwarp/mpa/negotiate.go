package mpa

import (
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// maxDepth is the largest IRD or ORD that can be negotiated.
const maxDepth = wire.DepthNotNegotiated - 1

// negotiated reports whether both sides negotiate a depth, given the depths that they offer. The
// policy AlwaysNegotiate takes the peer's value for "not negotiated" as a number.
func (c *Conn) negotiated(own, peer uint16) bool {
	return own != wire.DepthNotNegotiated && (peer != wire.DepthNotNegotiated || c.policy.AlwaysNegotiate)
}

// negotiateReply sets the responder's depths (IRD and ORD) and RTRs from those of the Request and
// p, and returns the enhanced data of its Reply (RFC 6581): ORD is lowered to the initiator's IRD,
// and IRD is raised to the initiator's ORD, up to MaxIRD and to maxDepth, above which a depth means
// "not negotiated". Without enhanced data in the Request, the depths of p are used.
func (c *Conn) negotiateReply(p AcceptParam) wire.Enhanced {
	s := &c.params
	s.IRD, s.ORD = min(p.IRD, wire.DepthNotNegotiated), min(p.ORD, wire.DepthNotNegotiated)
	if !s.Enhanced {
		return wire.Enhanced{}
	}
	ird, ord := wire.DepthNotNegotiated, wire.DepthNotNegotiated
	if c.negotiated(s.ORD, s.PeerIRD) {
		s.ORD = min(s.ORD, s.PeerIRD)
		ord = s.ORD
	}
	rtr := c.offeredRTR(s.RTR)
	if s.PeerToPeer && rtr&RTRRead != 0 {
		s.IRD = max(s.IRD, 1) // an RTR that is a read needs an entry of the read queue
	}
	if c.negotiated(s.IRD, s.PeerORD) {
		raised := min(s.PeerORD, c.cfg.MaxIRD)
		s.IRD = min(max(s.IRD, raised), maxDepth)
		ird = s.IRD
	}
	s.RTR = rtr
	return enhancedData(s.PeerToPeer, rtr, ird, ord)
}

// offeredRTR returns the RTRs in a responder's Reply: those that the initiator asks for and the
// responder supports, or all that it supports if there are none; 0 outside of the peer-to-peer
// model. With the policy OfferOneRTR it is one: the read if the initiator asks for it but not for
// the write, otherwise the write.
func (c *Conn) offeredRTR(asked RTR) RTR {
	if !c.params.PeerToPeer {
		return 0
	}
	if c.policy.OfferOneRTR {
		if asked&RTRWrite == 0 && asked&RTRRead != 0 {
			return RTRRead
		}
		return RTRWrite
	}
	if common := asked & c.cfg.RTR; common != 0 {
		return common
	}
	return c.cfg.RTR
}

// applyReply sets the initiator's depths and RTR from the enhanced data of the Reply. If the
// initiator cannot accept them, it returns the error, and its code for a Terminate.
func (c *Conn) applyReply(e *wire.Enhanced) (wire.TermError, error) {
	s := &c.params
	if c.negotiated(s.ORD, e.IRD) {
		s.ORD = min(s.ORD, e.IRD)
	}
	if c.negotiated(s.IRD, e.ORD) {
		if e.ORD > max(s.IRD, c.cfg.MaxIRD) {
			return wire.TermMPANotEnoughReads, ErrIRD
		}
		s.IRD = max(s.IRD, e.ORD)
	}
	if !c.cfg.PeerToPeer {
		return wire.TermError{}, nil // RTR flags are ignored
	}
	if !e.PeerToPeer {
		return wire.TermMPANoRTR, ErrModel
	}
	s.PeerToPeer = true
	if s.RTR = chooseRTR(c.cfg.RTR&rtrOf(e), e.IRD); s.RTR == 0 {
		return wire.TermMPANoRTR, ErrNoRTR
	}
	return wire.TermError{}, nil
}

// chooseRTR returns the agreed RTR that needs the least of the responder: a write needs
// nothing, a read an entry of its read queue, a send a receive that may not be posted yet.
func chooseRTR(agreed RTR, ird uint16) RTR {
	switch {
	case agreed&RTRWrite != 0:
		return RTRWrite
	case agreed&RTRRead != 0 && ird > 0:
		return RTRRead
	default:
		return agreed & RTRSend
	}
}
