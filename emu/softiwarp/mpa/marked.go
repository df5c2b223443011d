package mpa

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// marked is an FPDU with markers being queued.
type marked struct {
	o       *output
	at      uint64 // in the stream
	start   uint64 // where the ULPDU_Length is
	next    uint64 // where the next marker has to be
	sum     bool   // there is a CRC
	crc     uint32
	markers uint64
}

// frameMarked queues an FPDU with a marker wherever one is due. Payload is cut
// around them, not copied.
func (c *Conn) frameMarked(header []byte, payload [][]byte, load int) {
	n := len(header) + load
	w := marked{o: &c.out, at: c.at, next: c.at, sum: c.params.Out.CRC}
	if past := w.at % wire.MarkerInterval; past > 0 {
		w.next += wire.MarkerInterval - past
		if past+uint64(wire.FPDULen(n)) <= wire.MarkerInterval {
			c.framePlain(header, payload, load) // one after it is the next FPDU's
			return
		}
	}
	borrows := load > copyLimit
	own := wire.FPDULen(n) + wire.MarkerLen*(wire.FPDULen(n)/(wire.MarkerInterval-wire.MarkerLen)+2)
	if borrows {
		own -= load
	}
	w.o.begin(own)

	w.start = w.at
	if w.toMarker() == 0 {
		w.start += wire.MarkerLen // the marker before the length points nowhere
		w.mark()
	}
	length := w.own(wire.ULPDULengthLen)
	binary.BigEndian.PutUint16(length, uint16(n))
	w.cover(length)
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
		w.mark() // between pad and CRC
	}
	binary.LittleEndian.PutUint32(w.own(wire.CRCLen), w.crc)
	c.at = w.at
	c.count.MarkersSent += w.markers
}

// zeros is the longest pad.
var zeros [3]byte

// toMarker is how many octets may follow before the next marker.
func (w *marked) toMarker() int { return int(w.next - w.at) }

func (w *marked) own(n int) []byte {
	w.at += uint64(n)
	return w.o.own(n)
}

func (w *marked) cover(b []byte) {
	if w.sum {
		w.crc = wire.UpdateCRC(w.crc, b)
	}
}

func (w *marked) mark() {
	m := wire.Marker{}
	if w.at > w.start {
		m.Back = uint16(w.at - w.start)
	}
	b := w.own(wire.MarkerLen)
	m.Append(b[:0])
	w.cover(b)
	w.next += wire.MarkerInterval
	w.markers++
}

// room returns how much of n octets may follow now, after a marker if one is
// due.
func (w *marked) room(n int) int {
	if w.toMarker() == 0 {
		w.mark()
	}
	return min(n, w.toMarker())
}

func (w *marked) copy(b []byte) {
	for len(b) > 0 {
		n := w.room(len(b))
		copy(w.own(n), b)
		w.cover(b[:n])
		b = b[n:]
	}
}

func (w *marked) borrow(b []byte) {
	for len(b) > 0 {
		n := w.room(len(b))
		w.o.borrow(b[:n:n])
		w.at += uint64(n)
		w.cover(b[:n])
		b = b[n:]
	}
}
