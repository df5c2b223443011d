package iwarp

// ConnDeframer parses both directions of a captured connection: start-up frames, then FPDUs
// with the negotiated markers and CRCs.
type ConnDeframer struct {
	sides [2]direction
}

// direction is the state of one direction of a connection.
type direction struct {
	start   StartupFrame
	started bool
	waiting []byte // unparsed: a partial start-up frame, or octets before the other side's start-up frame
	fpdus   Deframer
	framed  bool
}

// ParsedFrame is a parsed start-up frame or FPDU.
type ParsedFrame struct {
	Side    int
	Startup *StartupFrame
	FPDU    *ReceivedFPDU
}

// String formats it as one line.
func (h ParsedFrame) String() string {
	if h.Startup != nil {
		return h.Startup.String()
	}
	return h.FPDU.String()
}

// Feed adds octets that side 0 or 1 has sent, and returns the frames that are complete.
// FPDUs are parsed once the start-up frames of both sides are known.
func (d *ConnDeframer) Feed(side int, b []byte) []ParsedFrame {
	var heard []ParsedFrame
	me, other := &d.sides[side], &d.sides[1-side]
	if me.framed {
		me.fpdus.Feed(b)
		return me.next(side, heard)
	}
	me.waiting = append(me.waiting, b...)
	if !me.started {
		start, rest, ok := ParseStartupFrame(me.waiting)
		if !ok {
			return nil
		}
		me.start, me.waiting, me.started = start, rest, true
		heard = append(heard, ParsedFrame{Side: side, Startup: &me.start})
	}
	if me.started && other.started {
		heard = me.frame(other, side, heard)
		heard = other.frame(me, 1-side, heard)
	}
	return heard
}

// frame switches from start-up frames to FPDUs.
func (l *direction) frame(other *direction, side int, heard []ParsedFrame) []ParsedFrame {
	if l.framed {
		return heard
	}
	l.framed = true
	l.fpdus.Markers = Val(other.start.M)
	l.fpdus.CRC = Val(l.start.C) || Val(other.start.C)
	l.fpdus.Feed(l.waiting)
	l.waiting = nil
	return l.next(side, heard)
}

func (l *direction) next(side int, heard []ParsedFrame) []ParsedFrame {
	for {
		g, ok := l.fpdus.Next()
		if !ok {
			return heard
		}
		heard = append(heard, ParsedFrame{Side: side, FPDU: &g})
	}
}

// Pending returns the octets of a side that belong to no complete frame.
func (d *ConnDeframer) Pending(side int) []byte {
	if l := &d.sides[side]; !l.framed {
		return l.waiting
	}
	return d.sides[side].fpdus.Pending()
}
