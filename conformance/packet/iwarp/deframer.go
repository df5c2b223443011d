package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// ReceivedFPDU is a received FPDU.
type ReceivedFPDU struct {
	Segment
	MPA MPA // received length, pad and CRC

	Offset     uint64   // stream offset of its first octet, including a marker before it
	Raw        []byte   // all octets, with markers and CRC
	ULPDU      []byte   // without markers and CRC
	Markers    []Marker // markers in it, and the one before it
	CorrectCRC uint32   // the correct CRC
	Odd        []string // descriptions of unusual values
}

// String formats the segment and the unusual values of its frame. It takes a zero CRC as usual,
// since it does not know whether CRCs are in use.
func (g ReceivedFPDU) String() string {
	const crcInUse = false
	s := g.Segment.String()
	for _, odd := range g.oddFrame(crcInUse) {
		s += ", " + odd
	}
	return s
}

// Diff returns the fields of got that differ from the expected frame.
func Diff(want Frame, got ReceivedFPDU) packet.Differences {
	var d packet.Differences
	f := want.FPDU()
	f.Segment.Diff(&d, got.Segment)
	f.MPA.diff(&d, got.MPA)
	return d
}

// Deframer parses the stream of one direction, fed in pieces of any size. It trusts every
// length field.
type Deframer struct {
	Markers bool // the stream has markers
	CRC     bool // CRCs are in use: report missing ones
	// Position is the stream offset of the next FPDU, counted from the first octet after
	// the start-up frame.
	Position uint64

	buf []byte
}

// Feed adds received octets.
func (d *Deframer) Feed(b []byte) { d.buf = append(d.buf, b...) }

// Pending returns the octets of an incomplete FPDU.
func (d *Deframer) Pending() []byte { return d.buf }

// Next returns the next FPDU; false if it is incomplete.
func (d *Deframer) Next() (ReceivedFPDU, bool) {
	r := markerReader{b: d.buf, at: d.Position, inUse: d.Markers}
	r.begin()
	length, ok := r.take(lengthLen)
	if !ok {
		return ReceivedFPDU{}, false
	}
	n := int(binary.BigEndian.Uint16(length))
	pad := padLen(n)
	if len(r.b) < n+pad+crcLen { // incomplete
		return ReceivedFPDU{}, false
	}
	ulpdu, _ := r.take(n)
	padding, _ := r.take(pad)
	r.markerIfDue() // the CRC covers a marker between pad and CRC
	correct := CRC32c(d.buf[:len(d.buf)-len(r.b)])
	field, ok := r.take(crcLen)
	if !ok || r.short {
		return ReceivedFPDU{}, false
	}
	size := len(d.buf) - len(r.b)
	crc := binary.LittleEndian.Uint32(field)
	g := ReceivedFPDU{
		Segment:    ParseSegment(ulpdu),
		MPA:        MPA{Length: new(uint16(n)), Pad: padding, CRC: &crc, CRCStatus: new(crcState(crc, correct))},
		Offset:     d.Position,
		Raw:        append([]byte{}, d.buf[:size]...),
		ULPDU:      ulpdu,
		Markers:    r.markers,
		CorrectCRC: correct,
	}
	g.Odd = append(g.oddFrame(d.CRC), g.Oddities()...)
	d.buf, d.Position = d.buf[size:], r.at
	return g, true
}

// crcState compares a received CRC with the correct one.
func crcState(got, correct uint32) CRCState {
	switch got {
	case correct:
		return CRCCorrect
	case 0:
		return CRCZero
	default:
		return CRCWrong
	}
}

// oddFrame lists unusual values of the frame. A zero CRC is unusual only if CRCs are in use.
func (g ReceivedFPDU) oddFrame(crcInUse bool) (odd oddities) {
	if n := Val(g.MPA.Length); n > maxULPDU {
		odd.addf("ULPDU of %d octets, the most there can be is %d", n, maxULPDU)
	}
	for _, b := range g.MPA.Pad {
		if b != 0 {
			odd.addf("pad %x", g.MPA.Pad)
			break
		}
	}
	for _, m := range g.Markers {
		if text := m.odd(); text != "" {
			odd.addf("%s", text)
		}
	}
	if state := Val(g.MPA.CRCStatus); state == CRCWrong || state == CRCZero && crcInUse {
		odd.addf("CRC %08x %v, right is %08x", Val(g.MPA.CRC), state, g.CorrectCRC)
	}
	return odd
}

// odd describes what is unusual about a marker; empty if nothing is.
func (m Marker) odd() string {
	switch {
	case m.Ptr&^ptrUnused != m.Want:
		return fmt.Sprintf("marker at %d points back %d, its FPDU began %d before", m.Offset, m.Ptr, m.Want)
	case m.Ptr != m.Want:
		return fmt.Sprintf("marker at %d has low bits set: %#x", m.Offset, m.Ptr)
	case m.Reserved != 0:
		return fmt.Sprintf("marker at %d has reserved bits set: %#x", m.Offset, m.Reserved)
	}
	return ""
}

// markerReader reads octets of one FPDU, and removes markers.
type markerReader struct {
	b       []byte
	at      uint64
	start   uint64
	inUse   bool
	short   bool
	markers []Marker
}

// begin removes a marker that is due before the FPDU, and notes where the FPDU starts.
func (r *markerReader) begin() {
	r.start = r.at // this marker has a pointer of 0
	r.markerIfDue()
	r.start = r.at
}

// markerIfDue removes a marker at the current stream offset. It sets short if the marker is incomplete.
func (r *markerReader) markerIfDue() {
	if !r.inUse || r.at%markerInterval != 0 {
		return
	}
	if len(r.b) < markerLen {
		r.short = true
		return
	}
	r.markers = append(r.markers, Marker{
		Offset:   r.at,
		Reserved: binary.BigEndian.Uint16(r.b),
		Ptr:      binary.BigEndian.Uint16(r.b[2:]),
		Want:     uint16(r.at - r.start),
	})
	r.b = r.b[markerLen:]
	r.at += markerLen
}

// take returns the next n octets without markers; false if there are fewer.
func (r *markerReader) take(n int) (p []byte, ok bool) {
	p = make([]byte, 0, n)
	for len(p) < n && !r.short {
		r.markerIfDue()
		k := min(n-len(p), int(markerInterval-r.at%markerInterval))
		if r.short || len(r.b) < k {
			r.short = true
			break
		}
		p = append(p, r.b[:k]...)
		r.b = r.b[k:]
		r.at += uint64(k)
	}
	return p, !r.short
}

// ConnDeframer parses both directions of a captured connection: start-up frames, then FPDUs
// with the negotiated markers and CRCs.
type ConnDeframer struct {
	sides [2]direction
}

// direction is the state of one direction of a connection.
type direction struct {
	startup    StartupFrame
	hasStartup bool
	waiting    []byte // unparsed: a partial start-up frame, or octets before the other side's start-up frame
	fpdus      Deframer
	inFPDUs    bool
}

// ParsedFrame is a parsed start-up frame or FPDU.
type ParsedFrame struct {
	Side    int
	Startup *StartupFrame
	FPDU    *ReceivedFPDU
}

// Feed adds octets that side 0 or 1 has sent, and returns the frames that are complete.
// FPDUs are parsed once the start-up frames of both sides are known.
func (d *ConnDeframer) Feed(side int, b []byte) []ParsedFrame {
	var frames []ParsedFrame
	me, other := &d.sides[side], &d.sides[1-side]
	if me.inFPDUs {
		me.fpdus.Feed(b)
		return me.appendFPDUs(side, frames)
	}
	me.waiting = append(me.waiting, b...)
	if !me.hasStartup {
		start, rest, ok := ParseStartupFrame(me.waiting)
		if !ok {
			return nil
		}
		me.startup, me.waiting, me.hasStartup = start, rest, true
		frames = append(frames, ParsedFrame{Side: side, Startup: &me.startup})
	}
	if me.hasStartup && other.hasStartup {
		frames = me.startFPDUs(other, side, frames)
		frames = other.startFPDUs(me, 1-side, frames)
	}
	return frames
}

// startFPDUs switches a side from start-up frames to FPDUs, and appends the complete FPDUs to
// frames. The start-up frames of both sides decide on markers and CRCs.
func (l *direction) startFPDUs(other *direction, side int, frames []ParsedFrame) []ParsedFrame {
	if l.inFPDUs {
		return frames
	}
	l.inFPDUs = true
	l.fpdus.Markers = Val(other.startup.M)
	l.fpdus.CRC = Val(l.startup.C) || Val(other.startup.C)
	l.fpdus.Feed(l.waiting)
	l.waiting = nil
	return l.appendFPDUs(side, frames)
}

// appendFPDUs appends the complete FPDUs of a side to frames.
func (l *direction) appendFPDUs(side int, frames []ParsedFrame) []ParsedFrame {
	for {
		g, ok := l.fpdus.Next()
		if !ok {
			return frames
		}
		frames = append(frames, ParsedFrame{Side: side, FPDU: &g})
	}
}

// Pending returns the octets of a side that belong to no complete frame.
func (d *ConnDeframer) Pending(side int) []byte {
	if l := &d.sides[side]; !l.inFPDUs {
		return l.waiting
	}
	return d.sides[side].fpdus.Pending()
}
