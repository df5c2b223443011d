package iwarp

// Dialogue reads both directions of a connection, as somebody sees it who only
// listens: start-up frames first, then FPDUs with the markers and CRCs that those
// agreed on.
type Dialogue struct {
	sides [2]listening
}

// listening is what is known of one side's octets.
type listening struct {
	start   Startup
	started bool
	waiting []byte // not read yet: a start-up frame in part, or what came before the other's
	fpdus   Deframer
	framed  bool
}

// Heard is something that was read: a start-up frame, or an FPDU.
type Heard struct {
	Side    int
	Startup *Startup
	FPDU    *Got
}

// String is what was heard, in a line.
func (h Heard) String() string {
	if h.Startup != nil {
		return h.Startup.String()
	}
	return h.FPDU.String()
}

// Feed takes octets that side 0 or 1 has sent, and returns what is complete now. What
// one side sends before the other's start-up frame can be read when that has come.
func (d *Dialogue) Feed(side int, b []byte) []Heard {
	var heard []Heard
	me, other := &d.sides[side], &d.sides[1-side]
	if me.framed {
		me.fpdus.Feed(b)
		return me.next(side, heard)
	}
	me.waiting = append(me.waiting, b...)
	if !me.started {
		start, rest, ok := ParseStartup(me.waiting)
		if !ok {
			return nil
		}
		me.start, me.waiting, me.started = start, rest, true
		heard = append(heard, Heard{Side: side, Startup: &me.start})
	}
	if me.started && other.started {
		heard = me.frame(other, side, heard)
		heard = other.frame(me, 1-side, heard)
	}
	return heard
}

// frame goes over to FPDUs.
func (l *listening) frame(other *listening, side int, heard []Heard) []Heard {
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

func (l *listening) next(side int, heard []Heard) []Heard {
	for {
		g, ok := l.fpdus.Next()
		if !ok {
			return heard
		}
		heard = append(heard, Heard{Side: side, FPDU: &g})
	}
}

// Pending are the octets of a side that are not part of anything complete.
func (d *Dialogue) Pending(side int) []byte {
	if l := &d.sides[side]; !l.framed {
		return l.waiting
	}
	return d.sides[side].fpdus.Pending()
}
