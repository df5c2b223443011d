package iwarpwire

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// fpdu is an FPDU as it stands in a stream.
type fpdu struct {
	raw    []byte // with the marker before it, if there is one
	marks  []int  // where in raw the markers are
	length int    // as ULPDU_Length has it
}

// cut finds the FPDU that b begins with, at a position in its stream. It reports
// false if b is too short to have all of it.
func cut(b []byte, at uint64, markers bool) (f fpdu, ok bool) {
	i, left, known := 0, wire.ULPDULengthLen, false
	for left > 0 {
		if markers && (at+uint64(i))%wire.MarkerInterval == 0 {
			f.marks = append(f.marks, i)
			i += wire.MarkerLen
		}
		n := left
		if markers {
			n = min(n, wire.MarkerInterval-int((at+uint64(i))%wire.MarkerInterval))
		}
		if i+n > len(b) {
			return f, false
		}
		i, left = i+n, left-n
		if !known { // the length is never cut by a marker
			known = true
			f.length = int(binary.BigEndian.Uint16(b[i-wire.ULPDULengthLen:]))
			left = wire.FPDULen(f.length) - wire.ULPDULengthLen
		}
	}
	f.raw = b[:i]
	return f, true
}

// leads reports whether a marker stands before the length.
func (f *fpdu) leads() bool { return len(f.marks) > 0 && f.marks[0] == 0 }

// trails reports whether a marker stands between pad and CRC.
func (f *fpdu) trails() bool {
	return len(f.marks) > 0 && f.marks[len(f.marks)-1] == len(f.raw)-wire.CRCLen-wire.MarkerLen
}

// start is where the length is.
func (f *fpdu) start() int {
	if f.leads() {
		return wire.MarkerLen
	}
	return 0
}

// without returns what is in the FPDU but for the markers for which skip is true.
func (f *fpdu) without(skip func(at int) bool) (b []byte) {
	from := 0
	for _, m := range f.marks {
		if skip(m) {
			b, from = append(b, f.raw[from:m]...), m+wire.MarkerLen
		}
	}
	return append(b, f.raw[from:]...)
}

// ulpdu is what the FPDU carries.
func (f *fpdu) ulpdu() []byte {
	b := f.without(func(int) bool { return true })
	return b[wire.ULPDULengthLen:][:f.length]
}

// blurred is the ULPDU to one who leaves markers in the payload: behind the first,
// all octets are where they are not.
func (f *fpdu) blurred() []byte {
	header := f.start() + wire.ULPDULengthLen + wire.ControlLen + wire.UntaggedLen
	b := f.without(func(at int) bool { return at < header })
	return b[wire.ULPDULengthLen:][:f.length]
}

func (f *fpdu) crc() uint32 { return binary.LittleEndian.Uint32(f.raw[len(f.raw)-wire.CRCLen:]) }

// sum is the CRC of the FPDU, but for what a defect leaves out.
func (f *fpdu) sum(q *Defects) uint32 {
	b, end := f.raw, len(f.raw)-wire.CRCLen
	crc := uint32(0)
	from := 0
	skip := func(at, n int) {
		crc, from = wire.UpdateCRC(crc, b[from:at]), at+n
	}
	if q.CRCSkipsMarker && f.leads() {
		skip(0, wire.MarkerLen)
	}
	tail := end
	if f.trails() {
		tail -= wire.MarkerLen
	}
	if pad := wire.PadLen(f.length); q.CRCSkipsPad && pad > 0 {
		skip(tail-pad, pad)
	}
	if q.CRCSkipsLastMarker && f.trails() {
		skip(tail, wire.MarkerLen)
	}
	return wire.UpdateCRC(crc, b[from:end])
}

// markersLie reports whether a marker points elsewhere than to the length. A
// picky reader looks at bits that mean nothing too.
func (f *fpdu) markersLie(picky bool) bool {
	return slices.ContainsFunc(f.marks, func(at int) bool {
		back := uint16(max(at-f.start(), 0))
		got := binary.BigEndian.Uint16(f.raw[at+2:])
		if picky {
			return got != back || binary.BigEndian.Uint16(f.raw[at:]) != 0
		}
		return got&^3 != back
	})
}

// headerAndLength is what HeaderInOneRead wants to have at once.
const headerAndLength = wire.ULPDULengthLen + wire.ControlLen + wire.UntaggedLen

// takeFPDUs takes FPDUs off what has come.
func (c *Conn) takeFPDUs(b []byte) {
	c.partial = append(c.partial, b...)
	for c.phase == full {
		if c.q.SkipsGarbage {
			c.skipGarbage()
		}
		f, ok := cut(c.partial, c.inAt, c.framing.wireIn.Markers)
		if !ok {
			break
		}
		rest := c.partial[len(f.raw):]
		if c.q.OneFPDUPerSegment {
			rest = nil
		}
		c.inAt += uint64(len(f.raw))
		c.partial = nil
		c.takeFPDU(&f)
		c.partial = rest
	}
	if c.q.HeaderInOneRead && c.phase == full && len(c.partial) > 0 && len(c.partial) < headerAndLength {
		c.refuse(wire.TermMPACRC)
	}
}

// skipGarbage steps over FPDUs of no octets, word by word.
func (c *Conn) skipGarbage() {
	for len(c.partial) >= 4 && c.partial[0] == 0 && c.partial[1] == 0 {
		c.partial = c.partial[4:]
	}
}

// takeFPDU checks one FPDU and takes its segment.
func (c *Conn) takeFPDU(f *fpdu) {
	checked := c.framing.wireIn.CRC || c.q.CRCAlwaysChecked
	switch {
	case checked && f.sum(c.q) != f.crc():
		c.wrong(f, wire.TermMPACRC)
	case f.markersLie(c.q.MPAReservedRefused):
		c.wrong(f, wire.TermMPAMarker)
	case c.q.MarkersKept:
		c.receive(&segment{octets: f.blurred()})
	default:
		c.receive(&segment{octets: f.ulpdu()})
	}
}

// wrong is for an FPDU that is not good: the sound side gets one that it dislikes
// for the same reason.
func (c *Conn) wrong(f *fpdu, e wire.TermError) {
	if c.q.Resynchronises {
		if !c.told {
			c.told = true
			c.emit(terminate(e))
		}
		return
	}
	at := c.reframe.At()
	b := c.reframe.Append(nil, f.ulpdu())
	shown, _ := cut(b, at, c.framing.soundIn.Markers)
	sealed := c.framing.soundIn.CRC
	switch {
	case e == wire.TermMPAMarker && len(shown.marks) > 0:
		b[shown.marks[0]+3] ^= 4
		if sealed {
			binary.LittleEndian.PutUint32(b[len(b)-wire.CRCLen:], shown.sum(new(Defects)))
		}
	case sealed:
		b[len(b)-1] ^= 1
	default:
		c.refuse(e)
		return
	}
	c.sound.Input(c.edge.now, b)
}
