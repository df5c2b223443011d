package wire

import "encoding/binary"

// FPDU is an FPDU that a Deframer found.
type FPDU struct {
	ULPDU     []byte  // without markers; borrowed, see Deframer.Next
	Pad       [3]byte // the first PadLen(Length) octets are valid
	CRC       uint32  // as it was received
	CRCStatus CRCStatus
	Length    int // ULPDU_Length; exceeds len(ULPDU) only if octets were skipped

	Offset  uint64 // offset in the stream of the FPDU, or of the marker before it
	WireLen int    // length with markers
	Markers int    // number of markers
	// MarkerMismatch: a marker does not point to the ULPDU_Length. One of the two is wrong,
	// and so may be the rest of the stream.
	MarkerMismatch bool
}

// CRCStatus is the result of a CRC check.
type CRCStatus uint8

// Values of CRCStatus.
const (
	CRCOff     CRCStatus = iota // the stream has no CRCs
	CRCGood                     // the CRC is right
	CRCBad                      // the CRC is wrong
	CRCUnknown                  // octets were skipped
)

// String returns the status in one word.
func (c CRCStatus) String() string {
	return [...]string{"off", "good", "bad", "missing"}[c&3]
}

// Deframer splits one direction of a byte stream into FPDUs. It follows the lengths in the stream:
// after a wrong one all further FPDUs are wrong, which shows as CRCBad or MarkerMismatch.
type Deframer struct {
	framing  Framing
	offset   uint64 // offset of the current FPDU
	received int    // octets of it received so far
	buf      []byte // octets that were not skipped, or the FPDU that Next has returned
	skipped  bool   // octets were skipped: later ones are dropped
	returned bool   // buf is the FPDU that Next has returned
}

// NewDeframer returns a deframer for the octets after the start-up frame.
func NewDeframer(f Framing) *Deframer { return NewDeframerAt(f, 0) }

// NewDeframerAt returns a deframer for captures that begin inside a stream: the next FPDU
// begins at this offset after the start-up frame.
func NewDeframerAt(f Framing, offset uint64) *Deframer {
	return &Deframer{framing: f, offset: offset}
}

// Pending returns the number of octets received of an incomplete FPDU; 0 if there is none.
func (d *Deframer) Pending() int {
	if d.returned {
		return 0
	}
	return d.received
}

// PartialULPDU returns the received part of the incomplete ULPDU; nil if no ULPDU is incomplete, if
// octets of it were skipped, and for streams with markers. It is valid until the next call of Next.
func (d *Deframer) PartialULPDU() []byte {
	if d.returned || d.skipped || d.framing.Markers || len(d.buf) < ULPDULengthLen {
		return nil
	}
	n := int(binary.BigEndian.Uint16(d.buf))
	return d.buf[ULPDULengthLen:min(ULPDULengthLen+n, len(d.buf))]
}

// Missing returns how many octets of the incomplete FPDU are missing, and how long its pad is. Both
// are 0 if no FPDU is incomplete, or if its length is not known yet.
func (d *Deframer) Missing() (octets, pad int) {
	if d.returned { // buf is a complete FPDU
		return 0, 0
	}
	n, known := d.extent(d.buf)
	if !known {
		return 0, 0
	}
	return n - d.received, PadLen(int(binary.BigEndian.Uint16(d.buf[d.markerPrefixLen():])))
}

// Next consumes b up to the end of the current FPDU. If the FPDU is complete, ok is true, and the
// caller continues with rest. If not, all of b is consumed.
//
// The ULPDU aliases b if b has the whole FPDU and no marker splits it, else a buffer of the
// deframer. It is valid until the next call, and only while b is unchanged.
func (d *Deframer) Next(b []byte) (f FPDU, rest []byte, ok bool) {
	d.discardReturned()
	if d.received == 0 {
		if n, known := d.extent(b); known && n <= len(b) {
			return d.finish(b[:n]), b[n:], true
		}
	}
	for len(b) > 0 {
		n, known := d.extent(d.buf) // if not known, n octets end with the ULPDU_Length
		take := min(n-d.received, len(b))
		if !d.skipped { // after skipped octets, the rest of the FPDU is only counted
			d.buf = append(d.buf, b[:take]...)
		}
		d.received, b = d.received+take, b[take:]
		if known && d.received == n {
			return d.finish(d.buf), b, true
		}
	}
	return f, nil, false
}

// Skip consumes n octets that were sent but are missing, as in a truncated capture, up to the end
// of an FPDU. If it reaches the end, ok is true, and f has the octets before the first skipped one.
// rest is the number of octets that are left to skip. If ok is false and rest is not 0, a
// ULPDU_Length is missing, and the deframer cannot continue.
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

// discardReturned drops the FPDU that was returned last.
func (d *Deframer) discardReturned() {
	if d.returned {
		d.buf, d.received, d.skipped, d.returned = d.buf[:0], 0, false, false
	}
}

// markerPrefixLen returns the length of the marker before the ULPDU_Length, or 0.
func (d *Deframer) markerPrefixLen() int {
	if d.framing.Markers && d.offset%MarkerInterval == 0 {
		return MarkerLen
	}
	return 0
}

// extent returns the length, with markers, of the FPDU at the start of raw. If raw is too short
// to tell, known is false, and n is the number of octets up to the end of the ULPDU_Length.
func (d *Deframer) extent(raw []byte) (n int, known bool) {
	prefixLen := d.markerPrefixLen()
	if len(raw) < prefixLen+ULPDULengthLen {
		return prefixLen + ULPDULengthLen, false
	}
	n = FPDULen(int(binary.BigEndian.Uint16(raw[prefixLen:])))
	if d.framing.Markers {
		n += MarkerLen * markersWithin(d.offset+uint64(prefixLen), n)
	}
	return prefixLen + n, true
}

// finish decodes an FPDU from raw, its octets on the wire, and advances the stream offset past it.
// raw ends early if octets of the FPDU were skipped.
func (d *Deframer) finish(raw []byte) FPDU {
	prefixLen := d.markerPrefixLen()
	wireLen, _ := d.extent(raw)
	f := FPDU{Length: int(binary.BigEndian.Uint16(raw[prefixLen:])), Offset: d.offset, WireLen: wireLen}
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
		f.Markers = (wireLen - FPDULen(f.Length)) / MarkerLen
		f.MarkerMismatch = d.markersMismatch(raw, prefixLen)
		body = d.strip(raw, prefixLen)
	}
	f.setBody(body[ULPDULengthLen:])
	d.offset += uint64(wireLen)
	d.returned = true
	return f
}

// setBody sets ULPDU, pad and CRC from body, the octets after the ULPDU_Length without
// markers. body ends early if octets were skipped.
func (f *FPDU) setBody(body []byte) {
	n := min(f.Length, len(body))
	f.ULPDU, body = body[:n:n], body[n:]
	n = copy(f.Pad[:PadLen(f.Length)], body)
	if body = body[n:]; len(body) >= CRCLen {
		f.CRC = binary.LittleEndian.Uint32(body)
	}
}

// markersMismatch reports whether a marker in raw does not point to the ULPDU_Length. prefixLen is
// the length of a marker before the ULPDU_Length, or 0.
func (d *Deframer) markersMismatch(raw []byte, prefixLen int) bool {
	if prefixLen > 0 && markerPointer(raw) != 0 {
		return true
	}
	for i := prefixLen + octetsToMarker(d.offset+uint64(prefixLen)); i+MarkerLen <= len(raw); i += MarkerInterval {
		if markerPointer(raw[i:]) != uint16(i-prefixLen) {
			return true
		}
	}
	return false
}

// markerPointer returns the FPDUPTR of a marker, whose two low bits do not count.
func markerPointer(b []byte) uint16 { return binary.BigEndian.Uint16(b[2:]) &^ 3 }

// strip returns raw without its markers. prefixLen is the length of the marker at its start, or 0.
// The result is a subslice of raw if there is no other marker, else a copy in d.buf. raw may be
// d.buf.
func (d *Deframer) strip(raw []byte, prefixLen int) []byte {
	n := octetsToMarker(d.offset + uint64(prefixLen))
	raw = raw[prefixLen:]
	if n >= len(raw) {
		return raw
	}
	out := d.buf[:0]
	for n < len(raw) {
		out = append(out, raw[:n]...) // moves towards the front, so overlap is safe
		raw = raw[min(n+MarkerLen, len(raw)):]
		n = MarkerInterval - MarkerLen
	}
	d.buf = append(out, raw...)
	return d.buf
}
