package mpa

import (
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// maxDepth is the most reads that a depth can mean.
const maxDepth = wire.DepthNotNegotiated - 1

// negotiated reports whether both sides leave a depth to MPA.
func (c *Conn) negotiated(own, peer uint16) bool {
	return own != wire.DepthNotNegotiated && (peer != wire.DepthNotNegotiated || c.q.DepthsAlwaysCount)
}

// answer settles what a responder has to do and may do, and returns what its
// Reply says of it.
func (c *Conn) answer(p AcceptParam) wire.Enhanced {
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
	rtr := c.offer(s.RTR)
	if c.negotiated(s.IRD, s.PeerORD) {
		raised := min(s.PeerORD, c.cfg.MaxIRD)
		if s.PeerToPeer && rtr&RTRRead != 0 {
			raised = max(raised, 1) // the RTR itself, though nobody wants reads afterwards
		}
		s.IRD = min(max(s.IRD, raised), maxDepth)
		ird = s.IRD
	}
	s.RTR = rtr
	return enhancedData(s.PeerToPeer, rtr, ird, ord)
}

// offer returns the RTRs that a responder names: those of the asked ones that it
// can take, or if there are none, all that it can.
func (c *Conn) offer(asked RTR) RTR {
	if !c.params.PeerToPeer {
		return 0
	}
	if c.q.OneRTR {
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

// settle takes over what the responder's enhanced data says, and returns what is
// wrong with it.
func (c *Conn) settle(e *wire.Enhanced) (wire.TermError, error) {
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
		return wire.TermError{}, nil // and its flags, if it has any, mean nothing
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

// chooseRTR returns the one of the agreed RTRs that asks least of the responder:
// a write needs nothing, a read a place in its read queue, a send a receive that
// the application may not have posted.
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
