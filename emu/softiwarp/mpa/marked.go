package mpa

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// markedFPDU builds an FPDU with markers.
type markedFPDU struct {
	o       *output
	at      uint64 // current stream offset
	start   uint64 // stream offset of the ULPDU_Length
	next    uint64 // stream offset of the next marker
	hasCRC  bool   // a CRC is computed
	crc     uint32
	markers uint64
}

// frameMarked queues an FPDU with markers at multiples of wire.MarkerInterval in the stream. The
// payload, of payloadLen octets, is borrowed and split around markers; a short one is copied.
func (c *Conn) frameMarked(header []byte, payload [][]byte, payloadLen int) {
	n := len(header) + payloadLen // length of the ULPDU
	w := markedFPDU{o: &c.out, at: c.streamPos, next: c.streamPos, hasCRC: c.params.Out.CRC}
	// past octets were sent since the position of the last marker; w.next is that of the next one.
	if past := w.at % wire.MarkerInterval; past > 0 {
		w.next += wire.MarkerInterval - past
		if past+uint64(wire.FPDULen(n)) <= wire.MarkerInterval {
			c.framePlain(header, payload, payloadLen) // no marker: one at its end belongs to the next FPDU
			return
		}
	}
	borrows := payloadLen > copyLimit
	// maxRing is an upper bound of the octets of the FPDU and its markers in the ring of c.out. Its
	// two extra markers may be one before the ULPDU_Length and one in the last, partial interval.
	maxRing := wire.FPDULen(n) + wire.MarkerLen*(wire.FPDULen(n)/(wire.MarkerInterval-wire.MarkerLen)+2)
	if borrows {
		maxRing -= payloadLen
	}
	w.o.reserve(maxRing)

	w.start = w.at
	if w.toMarker() == 0 {
		w.start += wire.MarkerLen // a marker before the length has a pointer of 0
		w.addMarker()
	}
	length := w.alloc(wire.ULPDULengthLen)
	binary.BigEndian.PutUint16(length, uint16(n))
	w.updateCRC(length)
	w.copy(header)
	for _, p := range payload {
		if borrows {
			w.borrow(p)
		} else {
			w.copy(p)
		}
	}
	w.copy(zeros[:wire.PadLen(n)])
	if w.toMarker() == 0 {
		w.addMarker() // between pad and CRC
	}
	binary.LittleEndian.PutUint32(w.alloc(wire.CRCLen), w.crc)
	c.streamPos = w.at
	c.count.MarkersSent += w.markers
}

// zeros is the longest pad.
var zeros [3]byte

// toMarker returns the number of octets up to the next marker.
func (w *markedFPDU) toMarker() int { return int(w.next - w.at) }

// alloc queues n octets between two markers, and returns them for the caller to fill.
func (w *markedFPDU) alloc(n int) []byte {
	w.at += uint64(n)
	return w.o.alloc(n)
}

func (w *markedFPDU) updateCRC(b []byte) {
	if w.hasCRC {
		w.crc = wire.UpdateCRC(w.crc, b)
	}
}

// addMarker queues a marker that points back to the ULPDU_Length; the pointer of a marker before
// the ULPDU_Length is 0.
func (w *markedFPDU) addMarker() {
	m := wire.Marker{}
	if w.at > w.start {
		m.Back = uint16(w.at - w.start)
	}
	b := w.alloc(wire.MarkerLen)
	m.Append(b[:0])
	w.updateCRC(b)
	w.next += wire.MarkerInterval
	w.markers++
}

// addDueMarker adds a marker if one is due at the stream offset. It returns how many of n octets
// fit before the next marker.
func (w *markedFPDU) addDueMarker(n int) int {
	if w.toMarker() == 0 {
		w.addMarker()
	}
	return min(n, w.toMarker())
}

// copy queues a copy of b, with the markers that fall into it.
func (w *markedFPDU) copy(b []byte) {
	for len(b) > 0 {
		n := w.addDueMarker(len(b))
		copy(w.alloc(n), b)
		w.updateCRC(b[:n])
		b = b[n:]
	}
}

// borrow queues b without a copy, split around the markers that fall into it.
func (w *markedFPDU) borrow(b []byte) {
	for len(b) > 0 {
		n := w.addDueMarker(len(b))
		w.o.borrow(b[:n:n])
		w.at += uint64(n)
		w.updateCRC(b[:n])
		b = b[n:]
	}
}
