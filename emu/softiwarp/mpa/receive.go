package mpa

import "github.com/fabrictest/fabrictest/emu/iwarp/wire"

// nextFPDU consumes one FPDU of the input and returns its event: the ULPDU, or the error of an
// invalid FPDU. It reports false if the FPDU is incomplete. Two policies imitate devices: with
// TrailerInOne, an FPDU whose pad and CRC arrive in two inputs has a CRC error; with
// DeliverUnchecked, a CRC error comes with the ULPDU.
func (c *Conn) nextFPDU() (e Event, ok bool) {
	f, rest, ok := c.deframer.Next(c.in)
	c.in = rest
	if !ok {
		missing, pad := c.deframer.Missing()
		c.trailerSplit = c.policy.TrailerInOne && missing > 0 && missing < pad+wire.CRCLen
		return e, false
	}
	// The CRC is checked first: in a corrupt FPDU the markers may be corrupt as well.
	if f.CRCStatus == wire.CRCBad || c.trailerSplit && c.params.In.CRC {
		e = c.fail(wire.TermMPACRC, TerminateThenClose, ErrCRC)
		if c.policy.DeliverUnchecked {
			e.ULPDU = f.ULPDU
		}
		return e, true
	}
	if f.MarkerMismatch {
		return c.fail(wire.TermMPAMarker, TerminateThenClose, ErrMarker), true
	}
	c.sendBlocked = false // a responder may send after the initiator's first FPDU
	c.count.FPDUsReceived++
	c.count.MarkersTaken += uint64(f.Markers)
	return Event{Kind: EventULPDU, ULPDU: f.ULPDU}, true
}

// PartialULPDU returns the received part of an incomplete ULPDU, for the policy DeliverPartial: it
// imitates devices that place data before the CRC has arrived. It returns nil without that policy,
// and outside of full operation.
func (c *Conn) PartialULPDU() []byte {
	if !c.policy.DeliverPartial || c.state != fullOperation {
		return nil
	}
	return c.deframer.PartialULPDU()
}
