package wire

import (
	"encoding/binary"
	"fmt"
)

// Framing is how one direction of a stream is framed, as the start-up frames
// have settled it.
type Framing struct {
	Markers bool // the receiver asked for them
	CRC     bool // one of the two did; otherwise the field is there and means nothing
}

// FramingTo returns the framing of what is sent to the one whose start-up frame
// is receiver's, the other one having sent sender.
func FramingTo(receiver, sender *StartFrame) Framing {
	return Framing{Markers: receiver.Markers, CRC: receiver.CRC || sender.CRC}
}

// Framer puts ULPDUs into FPDUs. It is one direction of one stream: markers
// stand where the count of all octets before them says.
type Framer struct {
	framing Framing
	at      uint64
}

// NewFramer returns a framer for the octets after the start-up frame.
func NewFramer(f Framing) Framer { return Framer{framing: f} }

// At is how many octets have been framed.
func (f *Framer) At() uint64 { return f.at }

// Len is how long the next FPDU will be if it carries ulpduLen octets, with the
// markers before and in it.
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

// Append appends the FPDU of a ULPDU that parts make up one after the other: a
// header, say, and pieces of memory. It pads with zeros, and without CRC sends
// zero in its place. More than MaxULPDU octets cannot be encoded: Append panics.
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

// AppendAgain appends an FPDU as a Deframer returned it, with its pad and its
// CRC, right or wrong. Only what it says of markers is new.
func (f *Framer) AppendAgain(b []byte, p *FPDU) []byte {
	w := f.begin(b, len(p.ULPDU))
	w.write(p.ULPDU)
	w.write(p.Pad[:PadLen(len(p.ULPDU))])
	w.align()
	return f.end(w, p.CRC)
}

// zeros is the longest pad.
var zeros [3]byte

// writing is an FPDU being appended to b.
type writing struct {
	b       []byte
	markers bool
	start   uint64 // position of the ULPDU_Length
	at      uint64
}

func (f *Framer) begin(b []byte, n int) writing {
	if n > MaxULPDU {
		panic(fmt.Sprintf("wire: ULPDU of %d octets exceeds %d", n, MaxULPDU))
	}
	w := writing{b: b, markers: f.framing.Markers, start: f.at, at: f.at}
	if w.markers && w.at%MarkerInterval == 0 {
		w.b = Marker{}.Append(w.b)
		w.at += MarkerLen
		w.start = w.at
	}
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(n))
	w.at += ULPDULengthLen
	return w
}

func (f *Framer) end(w writing, crc uint32) []byte {
	f.at = w.at + CRCLen
	return binary.LittleEndian.AppendUint32(w.b, crc)
}

// write appends p, with a marker wherever one is due.
func (w *writing) write(p []byte) {
	for w.markers && len(p) > 0 {
		n := toMarker(w.at)
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

// align puts the marker that falls between pad and CRC, which the CRC covers.
func (w *writing) align() {
	if w.markers && toMarker(w.at) == 0 {
		w.mark()
	}
}

func (w *writing) mark() {
	w.b = Marker{Back: uint16(w.at - w.start)}.Append(w.b)
	w.at += MarkerLen
}
