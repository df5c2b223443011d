package iwarp

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// MPA has the framing fields of an FPDU (RFC 5044 section 4).
type MPA struct {
	Length *uint16 // ULPDU_Length; nil: correct
	Pad    []byte  // nil: zeros up to a multiple of four
	CRC    *uint32 // nil: see CRCStatus
	// CRCStatus is the state of the CRC; nil: right if CRCs are in use, else zero.
	CRCStatus *CRCState

	// EditMarker changes the markers of the FPDU before they are sent. Expectations ignore
	// it; see [ReceivedFPDU.Markers].
	EditMarker func(*Marker)
}

// CRCState is the state of a CRC field.
type CRCState uint8

// States of a CRC.
const (
	CRCCorrect CRCState = iota
	CRCWrong
	CRCZero // zero, and not the correct CRC
)

// String is "right", "wrong" or "zero".
func (c CRCState) String() string { return [...]string{"right", "wrong", "zero"}[c%3] }

// Marker is an MPA marker, at every 512th octet of the stream (RFC 5044 section 4.3).
type Marker struct {
	Offset   uint64 // stream offset
	Reserved uint16
	Ptr      uint16 // FPDUPTR: distance to the start of its FPDU
	Want     uint16 // the correct Ptr
}

const (
	markerLen      = 4
	markerInterval = 512
	crcLen         = 4
	lengthLen      = 2
	maxULPDU       = 64768
	ptrUnused      = 0x3 // unused low bits of FPDUPTR
)

// FPDU is a segment with MPA framing.
type FPDU struct {
	Segment Segment
	MPA     MPA
}

// Frame is a [Segment] or an [FPDU], to send or to expect.
type Frame interface {
	FPDU() FPDU
	String() string
}

// FPDU implements [Frame]: it returns the segment with default framing.
func (s Segment) FPDU() FPDU { return FPDU{Segment: s} }

// FPDU implements [Frame]: it returns f.
func (f FPDU) FPDU() FPDU { return f }

// BadCRC flips one bit of the CRC, even if CRCs are not in use.
func (f FPDU) BadCRC() FPDU { f.MPA.CRCStatus = new(CRCWrong); return f }

// CRC sets the CRC field.
func (f FPDU) CRC(v uint32) FPDU { f.MPA.CRC = &v; return f }

// Pad sets the octets between ULPDU and CRC. Unless they fill up to a multiple of four, a
// receiver loses the frame boundaries.
func (f FPDU) Pad(octets ...byte) FPDU { f.MPA.Pad = append([]byte{}, octets...); return f }

// ULPDULength sets the length field only.
func (f FPDU) ULPDULength(n uint16) FPDU { f.MPA.Length = &n; return f }

// EditMarkers changes the markers of the FPDU before they are sent. The CRC is computed
// for the changed markers.
func (f FPDU) EditMarkers(edit func(*Marker)) FPDU { f.MPA.EditMarker = edit; return f }

// BadCRC is [FPDU.BadCRC].
func (s Segment) BadCRC() FPDU { return s.FPDU().BadCRC() }

// CRC is [FPDU.CRC].
func (s Segment) CRC(v uint32) FPDU { return s.FPDU().CRC(v) }

// Pad is [FPDU.Pad].
func (s Segment) Pad(octets ...byte) FPDU { return s.FPDU().Pad(octets...) }

// ULPDULength is [FPDU.ULPDULength].
func (s Segment) ULPDULength(n uint16) FPDU { return s.FPDU().ULPDULength(n) }

// EditMarkers is [FPDU.EditMarkers].
func (s Segment) EditMarkers(edit func(*Marker)) FPDU { return s.FPDU().EditMarkers(edit) }

// body returns the FPDU without markers and CRC.
func (f FPDU) body() []byte {
	b := f.Segment.Append(make([]byte, lengthLen))
	binary.BigEndian.PutUint16(b, packet.Get(f.MPA.Length, uint16(len(b)-lengthLen)))
	if f.MPA.Pad != nil {
		return append(b, f.MPA.Pad...)
	}
	return append(b, make([]byte, padLen(len(b)-lengthLen))...)
}

// padLen returns the number of pad octets after a ULPDU.
func padLen(ulpdu int) int { return -(lengthLen + ulpdu) & 3 }

// crc returns the CRC field: that of m if it is set, else the correct CRC, or 0 if CRCs are not in
// use.
func (m MPA) crc(correct uint32, inUse bool) uint32 {
	defaultState := CRCCorrect
	if !inUse {
		defaultState = CRCZero
	}
	switch {
	case m.CRC != nil:
		return *m.CRC
	case packet.Get(m.CRCStatus, defaultState) == CRCCorrect:
		return correct
	case packet.Get(m.CRCStatus, defaultState) == CRCZero:
		return 0
	default:
		return correct ^ 1
	}
}

// diff adds the framing fields of got that differ from the expected ones.
func (m MPA) diff(d *packet.Differences, got MPA) {
	packet.DiffValue(d, "ULPDU_Length", "%d", m.Length, got.Length)
	packet.DiffBytes(d, "pad", m.Pad, got.Pad)
	packet.DiffValue(d, "CRC", "%v", m.CRCStatus, got.CRCStatus)
	packet.DiffValue(d, "CRC", "%#08x", m.CRC, got.CRC)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32c is the CRC of MPA. Its least significant octet is sent first.
func CRC32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// String formats the segment and the framing fields that are set.
func (f FPDU) String() string {
	l := packet.Line{f.Segment.String()}
	packet.AddField(&l, "with length %d", f.MPA.Length)
	if f.MPA.Pad != nil {
		l.Addf("with pad %x", f.MPA.Pad)
	}
	packet.AddField(&l, "with CRC %#08x", f.MPA.CRC)
	packet.AddField(&l, "with CRC %v", f.MPA.CRCStatus)
	if f.MPA.EditMarker != nil {
		l.Addf("with markers changed")
	}
	return l.String()
}

// Framer builds the stream of one direction, with the negotiated markers and CRCs.
type Framer struct {
	Markers bool // the peer requested markers
	CRC     bool // one of the two sides requested CRCs
	// Position is the stream offset of the next octet, counted from the first octet after
	// the start-up frame. Add octets that the case sends without the Framer, since marker
	// positions depend on it.
	Position uint64
}

// Append appends a frame to b as an FPDU, with markers and a CRC if they are in use, and with
// the deliberate errors of the frame.
func (f *Framer) Append(b []byte, frame Frame) []byte {
	fpdu := frame.FPDU()
	w := markerWriter{b: b, at: f.Position, edit: fpdu.MPA.EditMarker, inUse: f.Markers}
	crcStart := len(b)
	w.begin()
	w.write(fpdu.body())
	w.markerIfDue() // the CRC covers a marker between pad and CRC
	correctCRC := CRC32c(w.b[crcStart:])
	w.write(binary.LittleEndian.AppendUint32(nil, fpdu.MPA.crc(correctCRC, f.CRC)))
	f.Position = w.at
	return w.b
}

// markerWriter appends octets of one FPDU, and inserts markers.
type markerWriter struct {
	b     []byte
	at    uint64 // stream offset
	start uint64 // stream offset of the FPDU
	edit  func(*Marker)
	inUse bool
}

// begin inserts a marker that is due before the FPDU, with pointer 0, and notes where the FPDU
// starts.
func (w *markerWriter) begin() {
	w.start = w.at // for the pointer 0
	w.markerIfDue()
	w.start = w.at
}

// markerIfDue inserts a marker if one is due at the current stream offset.
func (w *markerWriter) markerIfDue() {
	if !w.inUse || w.at%markerInterval != 0 {
		return
	}
	ptr := uint16(w.at - w.start)
	m := Marker{Offset: w.at, Ptr: ptr, Want: ptr}
	if w.edit != nil {
		w.edit(&m)
	}
	w.b = binary.BigEndian.AppendUint16(w.b, m.Reserved)
	w.b = binary.BigEndian.AppendUint16(w.b, m.Ptr)
	w.at += markerLen
}

// write appends octets of the FPDU, with the markers that are due among them.
func (w *markerWriter) write(p []byte) {
	for len(p) > 0 {
		w.markerIfDue()
		n := min(len(p), int(markerInterval-w.at%markerInterval))
		w.b = append(w.b, p[:n]...)
		w.at += uint64(n)
		p = p[n:]
	}
}
