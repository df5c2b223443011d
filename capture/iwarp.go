package capture

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// mpaState is the MPA decoding state of one direction of a TCP connection.
type mpaState uint8

const (
	mpaUnsynced mpaState = iota // no FPDU boundary is known; may not be iWARP
	mpaStartup                  // at the start of the stream
	mpaFPDUs                    // in FPDUs
	mpaOther                    // not iWARP
)

// mpaDirection decodes MPA in one direction of a TCP connection.
type mpaDirection struct {
	state    mpaState
	partial  []byte // incomplete start-up frame
	frame    wire.StartFrame
	hasFrame bool   // frame is set
	base     uint32 // sequence number after the start-up frame
	deframer *wire.Deframer
}

// MPAStart is an MPA start-up frame: an MPA Request or Reply.
type MPAStart struct {
	wire.StartFrame
}

// FPDU is an FPDU with its DDP segment.
type FPDU struct {
	wire.FPDU
	Segment wire.Segment
	// HeadersComplete: all DDP and RDMAP headers were captured.
	HeadersComplete bool
	// Framing is the negotiated framing of the stream; Guessed if the start-up frames
	// were not captured.
	Framing wire.Framing
	Guessed bool
}

// feedMPA decodes segment g, the next in order of direction dir: a start-up frame, then FPDUs.
// While no FPDU boundary is known (mpaUnsynced), it looks for one.
func (s *Stream) feedMPA(dir, reverse *tcpDirection, g segment) {
	m := &dir.mpa
	b := g.data
	if m.state == mpaUnsynced && !m.hasFrame && len(b) >= len(wire.RequestKey) {
		// Without a SYN, the key identifies a start-up frame, also one with other errors.
		if _, err := new(wire.StartFrame).Parse(b); err == nil || !errors.Is(err, wire.ErrKey) {
			m.state = mpaStartup
		}
	}
	if m.state == mpaStartup {
		b = s.parseStartFrame(dir, g.seq, b)
	}
	if len(b) == 0 {
		return
	}
	seq := g.seq + uint32(len(g.data)-len(b))
	if m.state == mpaFPDUs && m.deframer == nil {
		m.deframer = wire.NewDeframerAt(m.framing(&reverse.mpa), 0) // FPDUs begin here
	}
	if m.state == mpaUnsynced {
		s.resync(dir, reverse, seq, b)
	}
	if m.state != mpaFPDUs {
		return
	}
	for len(b) > 0 {
		f, rest, ok := m.deframer.Next(b)
		if !ok {
			if p := &s.p; len(p.PDUs) == 0 {
				p.Protocol = "iWARP"
				// The note begins with the fields of the TCP header.
				p.Note += fmt.Sprintf(", part of an FPDU (%d octets so far)", m.deframer.Pending())
			}
			return
		}
		s.addFPDU(dir, reverse, &f)
		b = rest
	}
}

// skipMissing skips n octets of direction dir that were not captured. If it cannot tell where the
// next FPDU begins, feedMPA has to look for one.
func (s *Stream) skipMissing(dir, reverse *tcpDirection, n int) {
	m := &dir.mpa
	if m.state == mpaStartup {
		m.state = mpaUnsynced
	}
	if m.state != mpaFPDUs {
		return
	}
	if m.deframer == nil {
		m.deframer = wire.NewDeframerAt(m.framing(&reverse.mpa), 0) // FPDUs begin here
	}
	for n > 0 {
		f, rest, ok := m.deframer.Skip(n)
		if !ok && rest > 0 { // the length of the FPDU is missing
			m.state = mpaUnsynced
			return
		}
		if ok {
			s.addFPDU(dir, reverse, &f)
		}
		n = rest
	}
}

// parseStartFrame decodes a start-up frame, which may span segments, and returns the octets after
// it; none while it is incomplete, or if b is not MPA. seq is the sequence number of b. It sets
// m.base, the sequence number of the first FPDU.
func (s *Stream) parseStartFrame(dir *tcpDirection, seq uint32, b []byte) (rest []byte) {
	m, p := &dir.mpa, &s.p
	buffered := len(m.partial)
	whole := b
	if buffered > 0 {
		whole = append(m.partial, b[:min(len(b), wire.StartFrameLen+wire.MaxPrivateData-buffered)]...)
	}
	start := new(MPAStart)
	rest, err := start.Parse(whole)
	switch {
	case err == nil:
	case errors.Is(err, wire.ErrShort):
		m.partial = append(m.partial[:0:0], whole...)
		if len(whole) >= len(wire.RequestKey) {
			p.Protocol = "MPA"
			p.Note += ", part of a start-up frame"
		}
		return nil
	case errors.Is(err, wire.ErrPrivateData):
		p.Protocol = "MPA"
		p.mark(MarkMalformed, err.Error())
		m.state, m.partial = mpaOther, nil
		return nil
	default:
		m.state, m.partial = mpaOther, nil
		return nil
	}
	used := len(whole) - len(rest) - buffered
	m.frame, m.hasFrame, m.base, m.state, m.partial = start.StartFrame, true, seq+uint32(used), mpaFPDUs, nil
	m.frame.PrivateData = nil // aliases the packet data
	p.Protocol = "MPA"
	p.PDUs = append(p.PDUs, start)
	if start.Reply && start.Reject {
		p.mark(MarkRejected, "MPA reply rejects the connection")
	}
	return b[used:]
}

// framing returns the framing of FPDUs in this direction, from the start-up frames of
// both sides as far as they are known.
func (m *mpaDirection) framing(peer *mpaDirection) wire.Framing {
	return wire.FramingTo(&peer.frame, &m.frame)
}

// resync looks for an FPDU at the start of b, after missing octets or if the connection started
// before the capture. seq is the sequence number of b.
func (s *Stream) resync(dir, reverse *tcpDirection, seq uint32, b []byte) {
	m, p := &dir.mpa, &s.p
	negotiated := m.hasFrame && reverse.mpa.hasFrame // both start-up frames were captured
	framing, at := m.framing(&reverse.mpa), uint64(seq-m.base)
	if !negotiated {
		framing, at = wire.Framing{CRC: framing.CRC}, 0 // assume that there are no markers
	}
	ok := looksLikeFPDU(b, &framing, at, negotiated)
	switch {
	case ok:
		m.state, m.deframer = mpaFPDUs, wire.NewDeframerAt(framing, at)
		p.Protocol = "iWARP"
		p.mark(MarkMissingData, fmt.Sprintf("FPDUs found again at TCP octet %d", seq))
	case m.hasFrame || reverse.mpa.hasFrame:
		p.Protocol = "iWARP"
		p.mark(MarkMissingData, "the beginning of an FPDU is not known: octets before it are not in the capture")
	}
}

// looksLikeFPDU reports whether b plausibly starts with an FPDU. at is the offset of b in the
// stream. If framing was not negotiated, the FPDU must be complete and its CRC correct or zero, and
// looksLikeFPDU sets framing.CRC to whether the CRC is correct.
func looksLikeFPDU(b []byte, framing *wire.Framing, at uint64, negotiated bool) bool {
	if framing.Markers && at%4 != 0 {
		return false
	}
	head := b
	if framing.Markers && at%wire.MarkerInterval == 0 {
		if len(b) < wire.MarkerLen {
			return false
		}
		head = b[wire.MarkerLen:]
	}
	if len(head) < wire.ULPDULengthLen+wire.ControlLen {
		return false
	}
	n := int(binary.BigEndian.Uint16(head))
	var c wire.Control
	_, _ = c.Parse(head[wire.ULPDULengthLen:])
	if n < wire.ControlLen+wire.TaggedLen || n > wire.MaxMULPDU || !c.Consistent() || c.DDPReserved != 0 || c.RDMAPReserved != 0 ||
		c.DDPVersion != wire.DDPVersion || c.RDMAPVersion != wire.RDMAPVersion {
		return false
	}
	if negotiated {
		return true
	}
	f, _, whole := wire.NewDeframerAt(wire.Framing{CRC: true}, at).Next(b)
	if !whole {
		return false
	}
	framing.CRC = f.CRCStatus == wire.CRCGood
	return framing.CRC || f.CRC == 0
}

// addFPDU decodes an FPDU of direction dir, adds it to the current packet, and marks its errors.
func (s *Stream) addFPDU(dir, reverse *tcpDirection, f *wire.FPDU) {
	p := &s.p
	p.Protocol = "iWARP"
	d := &FPDU{FPDU: *f, Framing: dir.mpa.framing(&reverse.mpa), Guessed: !dir.mpa.hasFrame || !reverse.mpa.hasFrame}
	if d.Guessed { // CRCs are in use if the deframer has checked this one
		d.Framing.CRC = f.CRCStatus == wire.CRCGood || f.CRCStatus == wire.CRCBad
	}
	// Copy the ULPDU: the deframer reuses its buffer.
	at := len(s.ulpduBuf)
	s.ulpduBuf = append(s.ulpduBuf, f.ULPDU...)
	d.ULPDU = s.ulpduBuf[at:len(s.ulpduBuf):len(s.ulpduBuf)]
	err := d.Segment.Parse(d.ULPDU)
	d.HeadersComplete = err == nil
	p.PDUs = append(p.PDUs, d)
	if err != nil && f.CRCStatus != wire.CRCUnknown {
		p.mark(MarkMalformed, err.Error())
	}
	if f.CRCStatus == wire.CRCBad {
		p.mark(MarkChecksum, "CRC of an FPDU is wrong")
	}
	if f.MarkerMismatch {
		p.mark(MarkMalformed, "a marker and a ULPDU_Length disagree")
	}
	if d.HeadersComplete && !d.Segment.Control.Consistent() {
		p.mark(MarkMalformed, "opcode and T bit do not go together")
	}
	if d.HeadersComplete && d.Segment.Control.Opcode == wire.OpTerminate {
		p.mark(MarkNak, d.Segment.Terminate.Error.String())
	}
}
