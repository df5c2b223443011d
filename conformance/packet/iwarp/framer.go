package iwarp

import "encoding/binary"

// Framer makes the stream of one direction: it puts frames one behind the other, with
// the markers and CRCs that start-up has agreed on. It does what the frames say,
// however wrong.
type Framer struct {
	Markers bool // the peer asked for them
	CRC     bool // one of the two did
	// Position is the offset in the stream of what is appended next, counted from the
	// first octet behind the start-up frame. Octets that a case sends by itself count
	// too: add them, or the markers behind them are wrong.
	Position uint64
}

// Append appends the octets of a frame.
func (f *Framer) Append(b []byte, frame Frame) []byte {
	fpdu := frame.FPDU()
	w := markerWriter{b: b, at: f.Position, edit: fpdu.MPA.EditMarker, on: f.Markers && !fpdu.MPA.NoMarkers}
	covered := len(b)
	w.begin()
	w.write(fpdu.body())
	w.markerIfDue() // one between pad and CRC is covered
	right := CRC32c(w.b[covered:])
	w.write(binary.LittleEndian.AppendUint32(nil, fpdu.MPA.crc(right, f.CRC)))
	f.Position = w.at
	return w.b
}

// markerWriter appends octets of one FPDU, and markers where they are due.
type markerWriter struct {
	b     []byte
	at    uint64 // position in the stream
	start uint64 // that of the FPDU's first octet
	edit  func(*Marker)
	on    bool
}

// begin puts a marker that is due before the FPDU, where it points at nothing.
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
