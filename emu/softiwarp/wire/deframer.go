package wire

import "encoding/binary"

// FPDU is what a Deframer found: one ULPDU and what was around it.
type FPDU struct {
	ULPDU     []byte  // without markers; borrowed, see Deframer.Next
	Pad       [3]byte // PadLen(Length) of these count; meant to be zero, and ignored
	CRC       uint32  // as it was received
	CRCStatus CRCStatus
	Length    int // ULPDU_Length; more than len(ULPDU) only if octets were skipped

	Offset  uint64 // position of the FPDU in the stream, of the marker before it if there is one
	WireLen int    // octets of the stream that it takes, markers included
	Markers int    // how many of them there are
	// MarkerMismatch says that a marker points elsewhere than to this FPDU's
	// ULPDU_Length: one of the two is wrong, and so may be all that follows.
	MarkerMismatch bool
}

// Check is what became of an FPDU's CRC.
type CRCStatus uint8

// The outcomes of a check.
const (
	CRCOff     CRCStatus = iota // the stream has no CRCs
	CRCGood                     // it is right
	CRCBad                      // it is wrong
	CRCUnknown                  // octets were skipped: nobody can tell
)

// String prints the outcome in a word.
func (c CRCStatus) String() string {
	return [...]string{"off", "good", "bad", "missing"}[c&3]
}

// Deframer finds the FPDUs in a byte stream that arrives cut anywhere. It is
// one direction of one stream, and follows the lengths in it: if one of those
// is wrong, so is all that comes after. That shows as CRCBad or MarkerMismatch,
// and it is the caller who gives up.
type Deframer struct {
	framing  Framing
	offset   uint64 // position of the FPDU under way
	received int    // octets of it that have passed
	buf      []byte // those that were not skipped, or else what Next has returned
	skipped  bool   // octets were skipped: what comes after them is of no use
	returned bool   // buf is what Next has returned
}

// NewDeframer returns a deframer for the octets after the start-up frame.
func NewDeframer(f Framing) *Deframer { return NewDeframerAt(f, 0) }

// NewDeframerAt returns a deframer for a stream whose next FPDU begins at
// position at, counted from the octet after the start-up frame: an observer may
// come late. Without markers the position only serves to be reported.
func NewDeframerAt(f Framing, at uint64) *Deframer { return &Deframer{framing: f, offset: at} }

// At is the position of the FPDU under way, or of the next.
func (d *Deframer) Offset() uint64 { return d.offset }

// Pending is how many octets of the FPDU under way have passed.
func (d *Deframer) Pending() int {
	if d.returned {
		return 0
	}
	return d.received
}

// Begun is what has come of the ULPDU of the FPDU under way, in a stream without
// markers. It is valid until the next call of Next.
func (d *Deframer) PartialULPDU() []byte {
	if d.returned || d.skipped || d.framing.Markers || len(d.buf) < ULPDULengthLen {
		return nil
	}
	n := int(binary.BigEndian.Uint16(d.buf))
	return d.buf[ULPDULengthLen:min(ULPDULengthLen+n, len(d.buf))]
}

// Missing is how many octets the FPDU under way still lacks, or 0 if there is
// none or its length is not known yet, and how long its pad is.
func (d *Deframer) Missing() (octets, pad int) {
	if d.returned {
		return 0, 0
	}
	n, known := d.extent(d.buf)
	if !known {
		return 0, 0
	}
	return n - d.received, PadLen(int(binary.BigEndian.Uint16(d.buf[d.markerPrefixLen():])))
}

// Next takes octets from the front of b, up to the end of an FPDU. If it found
// the end, ok is true and rest is what follows: call again with that. If not, b
// is used up, and the caller may have its memory back.
//
// The ULPDU lies in b if the whole FPDU does and no marker splits it, else in a
// buffer of the deframer. It is valid until the next call, and as long as b is.
func (d *Deframer) Next(b []byte) (f FPDU, rest []byte, ok bool) {
	d.discardReturned()
	if d.received == 0 {
		if n, known := d.extent(b); known && n <= len(b) {
			return d.finish(b[:n]), b[n:], true
		}
	}
	for len(b) > 0 {
		n, known := d.extent(d.buf)
		take := min(n-d.received, len(b))
		if !d.skipped {
			d.buf = append(d.buf, b[:take]...)
		}
		d.received, b = d.received+take, b[take:]
		if known && d.received == n {
			return d.finish(d.buf), b, true
		}
	}
	return f, nil, false
}

// Skip is Next for n octets that the caller does not have, though they were
// sent: a capture may keep only the beginning of a packet. An FPDU of which
// octets were skipped holds what came before them. ok is as for Next; if it is
// false and rest is not 0, a length was among what is missing, and the deframer
// has lost the stream: use another one.
func (d *Deframer) Skip(n int) (f FPDU, rest int, ok bool) {
	d.discardReturned()
	if n == 0 {
		return f, 0, false
	}
	end, known := d.extent(d.buf)
	if !known {
		return f, n, false
	}
	d.skipped = true
	take := min(end-d.received, n)
	if d.received += take; d.received == end {
		return d.finish(d.buf), n - take, true
	}
	return f, 0, false
}

// renew forgets what was returned last.
func (d *Deframer) discardReturned() {
	if d.returned {
		d.buf, d.received, d.skipped, d.returned = d.buf[:0], 0, false, false
	}
}

// lead is how many octets stand before the ULPDU_Length.
func (d *Deframer) markerPrefixLen() int {
	if d.framing.Markers && d.offset%MarkerInterval == 0 {
		return MarkerLen
	}
	return 0
}

// extent returns how many octets of the stream belong to the FPDU that raw
// begins, or, if known is false, how many it takes to tell.
func (d *Deframer) extent(raw []byte) (n int, known bool) {
	lead := d.markerPrefixLen()
	if len(raw) < lead+ULPDULengthLen {
		return lead + ULPDULengthLen, false
	}
	n = FPDULen(int(binary.BigEndian.Uint16(raw[lead:])))
	if d.framing.Markers {
		n += MarkerLen * markersWithin(d.offset+uint64(lead), n)
	}
	return lead + n, true
}

// finish makes an FPDU of raw, all of it or what precedes a hole, and moves on.
func (d *Deframer) finish(raw []byte) FPDU {
	lead := d.markerPrefixLen()
	wireLen, _ := d.extent(raw)
	f := FPDU{Length: int(binary.BigEndian.Uint16(raw[lead:])), Offset: d.offset, WireLen: wireLen}
	switch {
	case d.skipped:
		f.CRCStatus = CRCUnknown
	case d.framing.CRC:
		f.CRCStatus = CRCBad
		if CRC(raw[:len(raw)-CRCLen]) == binary.LittleEndian.Uint32(raw[len(raw)-CRCLen:]) {
			f.CRCStatus = CRCGood
		}
	}
	body := raw
	if d.framing.Markers {
		f.Markers = (lead + MarkerLen*markersWithin(d.offset+uint64(lead), FPDULen(f.Length))) / MarkerLen
		f.MarkerMismatch = d.markersLie(raw, lead)
		body = d.strip(raw, lead)
	}
	f.fill(body[ULPDULengthLen:])
	d.offset += uint64(wireLen)
	d.returned = true
	return f
}

// fill takes ULPDU, pad and CRC from body, which ends early if octets were
// skipped.
func (f *FPDU) fill(body []byte) {
	n := min(f.Length, len(body))
	f.ULPDU, body = body[:n:n], body[n:]
	n = copy(f.Pad[:PadLen(f.Length)], body)
	if body = body[n:]; len(body) >= CRCLen {
		f.CRC = binary.LittleEndian.Uint32(body)
	}
}

// markersLie reports whether a marker in raw points elsewhere than to the
// ULPDU_Length, which stands after the first lead octets.
func (d *Deframer) markersLie(raw []byte, lead int) bool {
	if lead > 0 && markerBack(raw) != 0 {
		return true
	}
	for i := lead + toMarker(d.offset+uint64(lead)); i+MarkerLen <= len(raw); i += MarkerInterval {
		if markerBack(raw[i:]) != uint16(i-lead) {
			return true
		}
	}
	return false
}

func markerBack(b []byte) uint16 { return binary.BigEndian.Uint16(b[2:]) &^ 3 }

// strip returns raw without its markers: a part of it if nothing but the lead
// has to go, else in d.buf, which raw may lie in.
func (d *Deframer) strip(raw []byte, lead int) []byte {
	n := toMarker(d.offset + uint64(lead))
	raw = raw[lead:]
	if n >= len(raw) {
		return raw
	}
	out := d.buf[:0]
	for n < len(raw) {
		out = append(out, raw[:n]...) // moves towards the front, so it may overlap
		raw = raw[min(n+MarkerLen, len(raw)):]
		n = MarkerInterval - MarkerLen
	}
	d.buf = append(out, raw...)
	return d.buf
}
