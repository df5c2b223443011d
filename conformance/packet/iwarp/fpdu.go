package iwarp

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// MPA is what the framing adds to a segment (RFC 5044 section 4).
type MPA struct {
	Length *uint16 // ULPDU_Length; nil: right
	Pad    []byte  // nil: zeros, as many as it takes to a multiple of four
	CRC    *uint32 // nil: as CRCIs says
	// CRCIs is how the CRC is; nil: right where CRCs are in use, else zero.
	CRCIs *CRCState

	// EditMarker changes the markers of the FPDU before they are sent, and NoMarkers
	// leaves them out. An expectation does not look at them: see [Got.Markers].
	EditMarker func(*Marker)
	NoMarkers  bool
}

// CRCState is how the CRC of an FPDU is.
type CRCState uint8

// The states of a CRC.
const (
	CRCRight CRCState = iota
	CRCWrong
	CRCZero // nothing but zeros where another number would be right: left out
)

// String is "right", "wrong" or "zero".
func (c CRCState) String() string { return [...]string{"right", "wrong", "zero"}[c%3] }

// Marker is four octets that the stream has at every 512th of its own (RFC 5044
// section 4.3).
type Marker struct {
	Offset   uint64 // of its first octet in the stream
	Reserved uint16
	Ptr      uint16 // FPDUPTR: how far back the FPDU that it is in begins
	Want     uint16 // what Ptr has to be
}

const (
	markerLen      = 4
	markerInterval = 512
	crcLen         = 4
	lengthLen      = 2
	maxULPDU       = 64768
	ptrUnused      = 0x3 // bits of FPDUPTR that are zero, and not looked at
)

// FPDU is a segment in MPA's frame.
type FPDU struct {
	Segment Segment
	MPA     MPA
}

// Frame is what can be sent in, or expected of, a stream: a [Segment] or an [FPDU].
type Frame interface {
	FPDU() FPDU
	String() string
}

// FPDU puts the segment into a frame without anything special.
func (s Segment) FPDU() FPDU { return FPDU{Segment: s} }

// FPDU is f.
func (f FPDU) FPDU() FPDU { return f }

// BadCRC has one bit of the CRC wrong, also where CRCs are not in use.
func (f FPDU) BadCRC() FPDU { f.MPA.CRCIs = new(CRCWrong); return f }

// CRC sets the CRC field.
func (f FPDU) CRC(v uint32) FPDU { f.MPA.CRC = &v; return f }

// Pad sets the octets between ULPDU and CRC, however many. Unless they fill up to a
// multiple of four, the rest of the stream is out of step.
func (f FPDU) Pad(octets ...byte) FPDU { f.MPA.Pad = append([]byte{}, octets...); return f }

// ULPDULength sets the length field; the ULPDU stays as long as it is.
func (f FPDU) ULPDULength(n uint16) FPDU { f.MPA.Length = &n; return f }

// EditMarkers changes the markers of the FPDU, if it has any, before they are sent;
// the CRC is right for what they are then.
func (f FPDU) EditMarkers(edit func(*Marker)) FPDU { f.MPA.EditMarker = edit; return f }

// NoMarkers leaves out markers that ought to be there. Those of later FPDUs are where
// they have to be.
func (f FPDU) NoMarkers() FPDU { f.MPA.NoMarkers = true; return f }

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

// NoMarkers is [FPDU.NoMarkers].
func (s Segment) NoMarkers() FPDU { return s.FPDU().NoMarkers() }

// body is the FPDU without markers and CRC.
func (f FPDU) body() []byte {
	b := f.Segment.Append(make([]byte, lengthLen))
	binary.BigEndian.PutUint16(b, packet.Get(f.MPA.Length, uint16(len(b)-lengthLen)))
	if f.MPA.Pad != nil {
		return append(b, f.MPA.Pad...)
	}
	return append(b, make([]byte, padLen(len(b)-lengthLen))...)
}

// padLen is how many octets of pad follow a ULPDU.
func padLen(ulpdu int) int { return -(lengthLen + ulpdu) & 3 }

// crc returns the field for an FPDU of which right is the CRC.
func (m MPA) crc(right uint32, inUse bool) uint32 {
	state := CRCRight
	if !inUse {
		state = CRCZero
	}
	switch {
	case m.CRC != nil:
		return *m.CRC
	case packet.Get(m.CRCIs, state) == CRCRight:
		return right
	case packet.Get(m.CRCIs, state) == CRCZero:
		return 0
	default:
		return right ^ 1
	}
}

func (m MPA) diff(d *packet.Differences, got MPA) {
	packet.DiffValue(d, "ULPDU_Length", "%d", m.Length, got.Length)
	packet.DiffBytes(d, "pad", m.Pad, got.Pad)
	packet.DiffValue(d, "CRC", "%v", m.CRCIs, got.CRCIs)
	packet.DiffValue(d, "CRC", "%#08x", m.CRC, got.CRC)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32c is the checksum of MPA, of which the least significant octet is sent first.
func CRC32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// String is the segment in a line, and behind it what is said about its frame.
func (f FPDU) String() string {
	l := line{f.Segment.String()}
	describe(&l, "with length %d", f.MPA.Length)
	if f.MPA.Pad != nil {
		l.addf("with pad %x", f.MPA.Pad)
	}
	describe(&l, "with CRC %#08x", f.MPA.CRC)
	describe(&l, "with CRC %v", f.MPA.CRCIs)
	if f.MPA.EditMarker != nil {
		l.addf("with markers changed")
	}
	if f.MPA.NoMarkers {
		l.addf("without markers")
	}
	return l.String()
}
