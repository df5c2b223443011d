package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Framing is the negotiated framing of one direction of a stream.
type Framing struct {
	Markers bool // requested by the receiver
	CRC     bool // requested by either side; otherwise the field is ignored
}

// FramingTo returns the framing of the direction from sender to receiver by their start-up frames.
func FramingTo(receiver, sender *StartFrame) Framing {
	return Framing{Markers: receiver.Markers, CRC: receiver.CRC || sender.CRC}
}

// Framer frames ULPDUs into FPDUs for one direction of a stream. It counts octets to place markers.
type Framer struct {
	framing Framing
	offset  uint64
}

// NewFramer returns a framer for the octets after the start-up frame.
func NewFramer(f Framing) Framer { return Framer{framing: f} }

// At returns the stream offset of the next FPDU: the number of octets framed.
func (f *Framer) At() uint64 { return f.offset }

// Len returns the length, with markers, of the next FPDU if its ULPDU has ulpduLen octets.
func (f *Framer) Len(ulpduLen int) int {
	n := FPDULen(ulpduLen)
	if !f.framing.Markers {
		return n
	}
	prefixLen, at := 0, f.offset
	if at%MarkerInterval == 0 { // a marker precedes the FPDU
		prefixLen, at = MarkerLen, at+MarkerLen
	}
	return prefixLen + n + MarkerLen*markersWithin(at, n)
}

// Append appends the FPDU of the ULPDU that is the concatenation of parts. Without CRCs, the CRC
// field is zero. Append panics if the ULPDU is longer than MaxULPDU.
func (f *Framer) Append(b []byte, parts ...[]byte) []byte {
	ulpdu, from := slices.Concat(parts...), len(b)
	b = f.appendBody(b, ulpdu, make([]byte, PadLen(len(ulpdu))))
	crc := uint32(0)
	if f.framing.CRC {
		crc = CRC(b[from:])
	}
	return binary.LittleEndian.AppendUint32(b, crc)
}

// AppendFPDU appends an FPDU of a Deframer with its own pad and CRC, even if they are wrong. The
// markers are those of the new position in the stream.
func (f *Framer) AppendFPDU(b []byte, p *FPDU) []byte {
	return binary.LittleEndian.AppendUint32(f.appendBody(b, p.ULPDU, p.Pad[:PadLen(len(p.ULPDU))]), p.CRC)
}

// appendBody appends an FPDU without its CRC, and with all markers up to the CRC. It advances the
// stream offset past the CRC.
func (f *Framer) appendBody(b, ulpdu, pad []byte) []byte {
	if len(ulpdu) > MaxULPDU {
		panic(fmt.Sprintf("wire: ULPDU of %d octets exceeds %d", len(ulpdu), MaxULPDU))
	}
	body := slices.Concat(binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu))), ulpdu, pad)
	if f.framing.Markers && f.offset%MarkerInterval == 0 {
		b = Marker{}.Append(b)
		f.offset += MarkerLen
	}
	start := f.offset // position of the ULPDU_Length, to which markers point
	for n := octetsToMarker(f.offset); f.framing.Markers && n <= len(body); n = octetsToMarker(f.offset) {
		b = append(b, body[:n]...)
		f.offset += uint64(n)
		b = Marker{Back: uint16(f.offset - start)}.Append(b)
		f.offset += MarkerLen
		body = body[n:]
	}
	f.offset += uint64(len(body) + CRCLen)
	return append(b, body...)
}
