package iwarpwire

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// marking is where in the outgoing stream an FPDU is, from the octet after the
// start-up frame on, and what markers have to know of those before it.
type marking struct {
	at    uint64
	first uint64 // where the first length since the last marker is
	has   bool   // there is one
}

// writing is an FPDU being framed.
type writing struct {
	c     *Conn
	b     []byte
	crc   uint32
	start uint64 // where the length is
	marks int    // behind it
}

// frame returns the FPDU of a ULPDU, as wrong as the defects have it.
func (c *Conn) frame(ulpdu []byte) []byte {
	q := c.q
	w := writing{c: c, start: c.marking.at}
	pad := wire.PadLen(len(ulpdu))
	if q.PadToEight {
		pad = -(wire.ULPDULengthLen + len(ulpdu)) & 7
	}
	length := len(ulpdu)
	if q.LengthCountsPad {
		length += pad
	}
	if w.due() {
		w.start += wire.MarkerLen
		w.mark(q.CRCSkipsMarker)
	}
	if m := &c.marking; !m.has {
		m.first, m.has = w.start, true
	}
	w.put(binary.BigEndian.AppendUint16(nil, uint16(length)), false)
	w.put(ulpdu, false)
	w.put(make([]byte, pad), q.CRCSkipsPad)
	if w.due() {
		w.mark(q.CRCSkipsLastMarker)
	}
	if !c.framing.wireOut.CRC {
		w.crc = 0
		if q.CRCFieldOmitted {
			return w.b
		}
	}
	c.marking.at += wire.CRCLen
	return binary.LittleEndian.AppendUint32(w.b, w.crc)
}

// due reports whether a marker stands here.
func (w *writing) due() bool {
	at := w.c.marking.at
	return w.c.framing.wireOut.Markers && at%wire.MarkerInterval == 0 && !(at == 0 && w.c.q.MarkersStartLate)
}

// mark writes a marker.
func (w *writing) mark(unsummed bool) {
	q, m := w.c.q, &w.c.marking
	mark := wire.Marker{}
	if m.at > w.start {
		mark.Back = uint16(m.at - w.start)
		w.marks++
	}
	switch {
	case q.MarkerPointsFirst && m.has:
		mark.Back = uint16(m.at - m.first)
	case q.MarkerPointsBack && w.marks > 1:
		mark.Back = wire.MarkerInterval
	}
	if q.MarkerReservedSet {
		mark.Reserved = 0xffff
	}
	m.has = false
	w.add(mark.Append(nil), unsummed)
}

// put writes octets, with a marker wherever one is due.
func (w *writing) put(b []byte, unsummed bool) {
	for len(b) > 0 {
		if w.due() {
			w.mark(false)
		}
		n := min(len(b), wire.MarkerInterval-int(w.c.marking.at%wire.MarkerInterval))
		w.add(b[:n], unsummed)
		b = b[n:]
	}
}

func (w *writing) add(b []byte, unsummed bool) {
	w.b = append(w.b, b...)
	w.c.marking.at += uint64(len(b))
	if !unsummed {
		w.crc = wire.UpdateCRC(w.crc, b)
	}
}
