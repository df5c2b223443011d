package mpa

import "github.com/fabrictest/fabrictest/emu/softiwarp/wire"

// nextFPDU takes one FPDU off what has come.
func (c *Conn) nextFPDU() (e Event, ok bool) {
	f, rest, ok := c.deframer.Next(c.in)
	c.in = rest
	if !ok {
		c.cut = c.q.TrailerCut && c.inTrailer()
		return e, false
	}
	// An FPDU with a wrong CRC says nothing, not even that its markers are wrong.
	if f.CRCStatus == wire.CRCBad || c.cut && c.params.In.CRC {
		e = c.fail(wire.TermMPACRC, TerminateThenClose, ErrCRC)
		if c.q.HandsUpFirst {
			e.ULPDU = f.ULPDU
		}
		return e, true
	}
	if f.MarkerMismatch {
		return c.fail(wire.TermMPAMarker, TerminateThenClose, ErrMarker), true
	}
	c.fenced = false
	c.count.FPDUsReceived++
	c.count.MarkersTaken += uint64(f.Markers)
	return Event{Kind: EventULPDU, ULPDU: f.ULPDU}, true
}

// Begun is of a defect: what has come of a ULPDU that is not there as a whole yet,
// and must not be looked at. Without the defect it is nil.
func (c *Conn) Begun() []byte {
	if !c.q.PlacesEarly || c.state != full {
		return nil
	}
	return c.deframer.PartialULPDU()
}

// inTrailer reports whether some of the pad and the CRC of the FPDU under way
// has come, and some has not.
func (c *Conn) inTrailer() bool {
	missing, pad := c.deframer.Missing()
	return missing > 0 && missing < pad+wire.CRCLen
}
