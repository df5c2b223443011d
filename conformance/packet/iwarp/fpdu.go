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

	// EditMarker changes markers before they are sent. Expectations ignore it.
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

// BadCRC returns a copy with one bit of the CRC of the FPDU flipped, even if CRCs are not in use.
func (s Segment) BadCRC() Segment { s.MPA.CRCStatus = new(CRCWrong); return s }

// CRC returns a copy with this CRC field of the FPDU.
func (s Segment) CRC(v uint32) Segment { s.MPA.CRC = &v; return s }

// Pad returns a copy with these octets between ULPDU and CRC. Unless they fill up to a multiple of
// four, a receiver loses the frame boundaries.
func (s Segment) Pad(octets ...byte) Segment { s.MPA.Pad = append([]byte{}, octets...); return s }

// ULPDULength returns a copy with this length field of the FPDU, and the same ULPDU.
func (s Segment) ULPDULength(n uint16) Segment { s.MPA.Length = &n; return s }

// EditMarkers returns a copy with the markers of the FPDU changed by edit before they are sent, and
// before the CRC is computed.
func (s Segment) EditMarkers(edit func(*Marker)) Segment { s.MPA.EditMarker = edit; return s }

// padLen returns the number of pad octets after a ULPDU.
func padLen(ulpdu int) int { return -(lengthLen + ulpdu) & 3 }

// MULPDU returns the longest ULPDU for an MSS, by the formulas of RFC 5044 section 4.5.
func MULPDU(mss int, markers bool) int {
	const minULPDU = 128
	n := mss - lengthLen - crcLen - mss%4
	if markers {
		n -= markerLen * ((mss + markerInterval - 1) / markerInterval)
	}
	return min(max(n, minULPDU), maxULPDU)
}

// PayloadToMarker returns the payload length of an untagged FPDU that starts at this position of
// the stream and ends at the next marker.
func PayloadToMarker(position uint64) int {
	n := int(markerInterval - position%markerInterval)
	if position%markerInterval == 0 {
		n -= markerLen // a marker before the FPDU
	}
	return n - lengthLen - untaggedLen - crcLen
}

// crc returns the CRC field: m.CRC or, if that is nil, the CRC that m.CRCStatus selects. If both
// are nil, it returns the correct CRC if inUse is set (CRCs were negotiated), otherwise 0.
func (m MPA) crc(correct uint32, inUse bool) uint32 {
	switch {
	case m.CRC != nil:
		return *m.CRC
	case m.CRCStatus == nil && inUse || m.CRCStatus != nil && *m.CRCStatus == CRCCorrect:
		return correct
	case m.CRCStatus == nil || *m.CRCStatus == CRCZero:
		return 0
	}
	return correct ^ 1 // CRCWrong
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32c is the CRC of MPA. Its least significant octet is sent first.
func CRC32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// describe adds the framing fields that a case has set to a line of a ladder diagram.
func (m MPA) describe(l *packet.Line) {
	packet.AddField(l, "with length %d", m.Length)
	addIf(l, m.Pad != nil, "with pad %x", m.Pad)
	packet.AddField(l, "with CRC %#08x", m.CRC)
	packet.AddField(l, "with CRC %v", m.CRCStatus)
	addIf(l, m.EditMarker != nil, "with markers changed")
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

// Append appends a segment as an FPDU, with markers and CRC as negotiated or as s.MPA says.
func (f *Framer) Append(b []byte, s Segment) []byte {
	body := s.Append(make([]byte, lengthLen))
	ulpdu := len(body) - lengthLen
	binary.BigEndian.PutUint16(body, packet.Get(s.MPA.Length, uint16(ulpdu)))
	if s.MPA.Pad != nil {
		body = append(body, s.MPA.Pad...)
	} else {
		body = append(body, make([]byte, padLen(ulpdu))...)
	}
	w := markerWriter{b: b, at: f.Position, start: f.Position, edit: s.MPA.EditMarker, inUse: f.Markers}
	w.markerIfDue() // a marker before the FPDU has the pointer 0
	w.start = w.at
	w.write(body)
	w.markerIfDue() // the CRC covers a marker between pad and CRC
	correctCRC := CRC32c(w.b[len(b):])
	w.write(binary.LittleEndian.AppendUint32(nil, s.MPA.crc(correctCRC, f.CRC)))
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

// markerIfDue inserts a marker, changed by w.edit, if one is due at the current stream offset.
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
