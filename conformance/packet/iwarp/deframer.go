package iwarp

import (
	"bytes"
	"encoding/binary"
	"strings"

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
}

// String formats the segment and the unusual values of its frame.
func (g ReceivedFPDU) String() string {
	return strings.Join(append([]string{g.Segment.String()}, g.oddFrame()...), ", ")
}

// Diff returns the fields of got that differ from the expected segment and its framing.
func Diff(want Segment, got ReceivedFPDU) packet.Differences {
	var d packet.Differences
	want.Diff(&d, got.Segment)
	packet.DiffValue(&d, "ULPDU_Length", "%d", want.MPA.Length, got.MPA.Length)
	packet.DiffBytes(&d, "pad", want.MPA.Pad, got.MPA.Pad)
	// A case expects a status (correct, zero or wrong) or a value of the CRC, or neither.
	packet.DiffValue(&d, "CRC", "%v", want.MPA.CRCStatus, got.MPA.CRCStatus)
	packet.DiffValue(&d, "CRC", "%#08x", want.MPA.CRC, got.MPA.CRC)
	return d
}

// Deframer parses the stream of one direction, in pieces of any size. It trusts every length field.
type Deframer struct {
	Markers bool // the stream has markers
	// Position is the stream offset of the next FPDU, from the end of the start-up frame on.
	Position uint64

	buf []byte
}

// Feed adds received octets.
func (d *Deframer) Feed(b []byte) { d.buf = append(d.buf, b...) }

// Pending returns the octets that Next has not parsed, those of an incomplete FPDU.
func (d *Deframer) Pending() []byte { return d.buf }

// Next returns the next FPDU; false if it is incomplete.
func (d *Deframer) Next() (ReceivedFPDU, bool) {
	r := markerReader{b: d.buf, at: d.Position, start: d.Position, inUse: d.Markers}
	r.markerIfDue() // a marker before the FPDU has the pointer 0
	r.start = r.at
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
	correctCRC := CRC32c(d.buf[:len(d.buf)-len(r.b)])
	crcField, ok := r.take(crcLen)
	if !ok || r.short {
		return ReceivedFPDU{}, false
	}
	size := len(d.buf) - len(r.b)
	crc := binary.LittleEndian.Uint32(crcField)
	g := ReceivedFPDU{
		Segment:    ParseSegment(ulpdu),
		MPA:        MPA{Length: new(uint16(n)), Pad: padding, CRC: &crc, CRCStatus: new(crcState(crc, correctCRC))},
		Offset:     d.Position,
		Raw:        append([]byte{}, d.buf[:size]...),
		ULPDU:      ulpdu,
		Markers:    r.markers,
		CorrectCRC: correctCRC,
	}
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

// oddFrame lists unusual values of the FPDU's framing: length, pad, markers and CRC. It does not
// list a CRC of zero, because CRCs may not be in use.
func (g ReceivedFPDU) oddFrame() (odd oddities) {
	n := Val(g.MPA.Length)
	odd.addIf(n > maxULPDU, "ULPDU of %d octets, the most there can be is %d", n, maxULPDU)
	odd.addIf(len(bytes.Trim(g.MPA.Pad, "\x00")) > 0, "pad %x", g.MPA.Pad)
	for _, m := range g.Markers {
		switch {
		case m.Ptr&^ptrUnused != m.Want:
			odd.addf("marker at %d points back %d, its FPDU began %d before", m.Offset, m.Ptr, m.Want)
		case m.Ptr != m.Want:
			odd.addf("marker at %d has low bits set: %#x", m.Offset, m.Ptr)
		case m.Reserved != 0:
			odd.addf("marker at %d has reserved bits set: %#x", m.Offset, m.Reserved)
		}
	}
	odd.addIf(Val(g.MPA.CRCStatus) == CRCWrong, "CRC %08x wrong, right is %08x", Val(g.MPA.CRC), g.CorrectCRC)
	return odd
}

// markerReader reads octets of one FPDU, and removes markers.
type markerReader struct {
	b       []byte // octets not yet read
	at      uint64 // stream offset of b
	start   uint64 // stream offset of the FPDU
	inUse   bool   // the stream has markers
	short   bool   // octets were missing
	markers []Marker
}

// markerIfDue removes a marker if one is due at the current stream offset, and records it with the
// pointer that it should have (Want). It sets short if the marker is incomplete.
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

// ConnDeframer parses both directions of a captured connection: start-up frames, then FPDUs.
type ConnDeframer struct {
	sides [2]direction
}

// direction is the state of one direction of a connection.
type direction struct {
	startup *StartupFrame // nil until it is complete
	fpdus   Deframer      // has all octets that are not parsed, also those of a start-up frame
}

// ParsedFrame is a parsed start-up frame or FPDU.
type ParsedFrame struct {
	Side    int
	Startup *StartupFrame
	FPDU    *ReceivedFPDU
}

// Feed adds octets that side 0 or 1 has sent, and returns the frames that are complete.
// FPDUs are parsed once the start-up frames of both sides are known.
func (d *ConnDeframer) Feed(side int, b []byte) (frames []ParsedFrame) {
	me, other := &d.sides[side], &d.sides[1-side]
	me.fpdus.Feed(b)
	if me.startup == nil {
		start, rest, ok := ParseStartupFrame(me.fpdus.buf)
		if !ok {
			return nil
		}
		me.startup, me.fpdus.buf = &start, rest
		frames = append(frames, ParsedFrame{Side: side, Startup: &start})
	}
	if other.startup == nil {
		return frames
	}
	me.fpdus.Markers, other.fpdus.Markers = Val(other.startup.M), Val(me.startup.M) // M requests markers from the peer
	for _, from := range []int{side, 1 - side} {
		fpdus := &d.sides[from].fpdus
		for g, ok := fpdus.Next(); ok; g, ok = fpdus.Next() {
			frames = append(frames, ParsedFrame{Side: from, FPDU: &g})
		}
	}
	return frames
}

// Pending returns the octets from a side that are not part of a complete frame yet.
func (d *ConnDeframer) Pending(side int) []byte { return d.sides[side].fpdus.Pending() }
