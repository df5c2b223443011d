package iwarp

import "encoding/binary"

// Framer builds the stream of one direction, with the negotiated markers and CRCs.
type Framer struct {
	Markers bool // the peer requested markers
	CRC     bool // one of the two sides requested CRCs
	// Position is the stream offset of the next octet, counted from the first octet after
	// the start-up frame. Add octets that the case sends without the Framer, since marker
	// positions depend on it.
	Position uint64
}

// Append appends a frame.
func (f *Framer) Append(b []byte, frame Frame) []byte {
	fpdu := frame.FPDU()
	w := markerWriter{b: b, at: f.Position, edit: fpdu.MPA.EditMarker, on: f.Markers && !fpdu.MPA.NoMarkers}
	covered := len(b)
	w.begin()
	w.write(fpdu.body())
	w.markerIfDue() // the CRC covers a marker between pad and CRC
	right := CRC32c(w.b[covered:])
	w.write(binary.LittleEndian.AppendUint32(nil, fpdu.MPA.crc(right, f.CRC)))
	f.Position = w.at
	return w.b
}

// markerWriter appends octets of one FPDU, and inserts markers.
type markerWriter struct {
	b     []byte
	at    uint64 // stream offset
	start uint64 // stream offset of the FPDU
	edit  func(*Marker)
	on    bool
}

// begin inserts a marker that is due before the FPDU, with pointer 0.
func (w *markerWriter) begin() {
	w.start = w.at
	w.markerIfDue()
	w.start = w.at
}

func (w *markerWriter) markerIfDue() {
	if !w.on || w.at%markerInterval != 0 {
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

func (w *markerWriter) write(p []byte) {
	for len(p) > 0 {
		w.markerIfDue()
		n := min(len(p), int(markerInterval-w.at%markerInterval))
		w.b = append(w.b, p[:n]...)
		w.at += uint64(n)
		p = p[n:]
	}
}
