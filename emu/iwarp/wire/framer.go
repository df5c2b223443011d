package wire

import (
	"encoding/binary"
	"fmt"
)

// Framing is the negotiated framing of one direction of a stream.
type Framing struct {
	Markers bool // requested by the receiver
	CRC     bool // requested by either side; otherwise the field is ignored
}

// FramingTo returns the framing of the direction from sender to receiver, given their
// start-up frames.
func FramingTo(receiver, sender *StartFrame) Framing {
	return Framing{Markers: receiver.Markers, CRC: receiver.CRC || sender.CRC}
}

// Framer frames ULPDUs into FPDUs for one direction of a stream. It counts octets to place
// markers.
type Framer struct {
	framing Framing
	at      uint64
}

// NewFramer returns a framer for the octets after the start-up frame.
func NewFramer(f Framing) Framer { return Framer{framing: f} }

// At returns the stream offset of the next FPDU: the number of octets framed.
func (f *Framer) At() uint64 { return f.at }

// Len returns the length, with markers, of the next FPDU if its ULPDU has ulpduLen octets.
func (f *Framer) Len(ulpduLen int) int {
	n := FPDULen(ulpduLen)
	if !f.framing.Markers {
		return n
	}
	lead, at := 0, f.at
	if at%MarkerInterval == 0 {
		lead, at = MarkerLen, at+MarkerLen
	}
	return lead + n + MarkerLen*markersWithin(at, n)
}

// Append appends the FPDU of the ULPDU that is the concatenation of parts, and returns the
// extended slice. Without CRC the field is zero. Append panics if the ULPDU is longer than
// MaxULPDU.
func (f *Framer) Append(b []byte, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	w := f.begin(b, n)
	for _, p := range parts {
		w.write(p)
	}
	w.write(zeros[:PadLen(n)])
	w.align()
	crc := uint32(0)
	if f.framing.CRC {
		crc = CRC(w.b[len(b):])
	}
	return f.end(w, crc)
}

// AppendFPDU appends an FPDU of a Deframer with its own pad and CRC, even if they are wrong. The
// markers are those of the new position in the stream.
func (f *Framer) AppendFPDU(b []byte, p *FPDU) []byte {
	w := f.begin(b, len(p.ULPDU))
	w.write(p.ULPDU)
	w.write(p.Pad[:PadLen(len(p.ULPDU))])
	w.align()
	return f.end(w, p.CRC)
}

// zeros is the longest pad.
var zeros [3]byte

// fpduWriter appends an FPDU to b.
type fpduWriter struct {
	b       []byte
	markers bool
	start   uint64 // offset of the ULPDU_Length
	at      uint64
}

// begin appends to b the marker before an FPDU, if one is due, and the ULPDU_Length n. It returns
// the writer for the rest.
func (f *Framer) begin(b []byte, n int) fpduWriter {
	if n > MaxULPDU {
		panic(fmt.Sprintf("wire: ULPDU of %d octets exceeds %d", n, MaxULPDU))
	}
	w := fpduWriter{b: b, markers: f.framing.Markers, start: f.at, at: f.at}
	if w.markers && w.at%MarkerInterval == 0 {
		w.b = Marker{}.Append(w.b)
		w.at += MarkerLen
		w.start = w.at
	}
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(n))
	w.at += ULPDULengthLen
	return w
}

// end appends the CRC, records the new stream offset, and returns the extended slice.
func (f *Framer) end(w fpduWriter, crc uint32) []byte {
	f.at = w.at + CRCLen
	return binary.LittleEndian.AppendUint32(w.b, crc)
}

// write appends p with the markers that fall before or into it.
func (w *fpduWriter) write(p []byte) {
	for w.markers && len(p) > 0 {
		n := octetsToMarker(w.at)
		if n == 0 {
			w.mark()
			continue
		}
		if n >= len(p) {
			break
		}
		w.b, w.at, p = append(w.b, p[:n]...), w.at+uint64(n), p[n:]
	}
	w.b, w.at = append(w.b, p...), w.at+uint64(len(p))
}

// align appends a marker between pad and CRC if one is due there. The CRC covers it.
func (w *fpduWriter) align() {
	if w.markers && octetsToMarker(w.at) == 0 {
		w.mark()
	}
}

// mark appends a marker that points back to the ULPDU_Length.
func (w *fpduWriter) mark() {
	w.b = Marker{Back: uint16(w.at - w.start)}.Append(w.b)
	w.at += MarkerLen
}
