package capture

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// mpaState is how far one direction of a connection has come.
type mpaState uint8

const (
	mpaLost  mpaState = iota // it may be iWARP, and no FPDU's beginning is known
	mpaStart                 // the next octet is the first of all
	mpaFull                  // FPDUs
	mpaNone                  // it is something else
)

// mpaHalf is one direction of what may be an iWARP stream.
type mpaHalf struct {
	state mpaState
	start []byte // of a start-up frame that is not complete
	frame wire.StartFrame
	known bool   // frame has been seen
	base  uint32 // sequence number of the octet after it
	d     *wire.Deframer
}

// MPAStart is a start-up frame of MPA.
type MPAStart struct {
	wire.StartFrame
}

// FPDU is an FPDU of MPA with what it carries.
type FPDU struct {
	wire.FPDU
	Segment wire.Segment
	// HeadersComplete says that the headers of DDP and RDMAP are all there.
	HeadersComplete bool
	// Framing is that of its stream, as negotiated or, if Guessed, as it seems.
	Framing wire.Framing
	Guessed bool
}

// feed takes octets in order.
func (s *Stream) feed(h, back *half, g segment) {
	m := &h.mpa
	b := g.data
	if m.state == mpaLost && !m.known && len(b) >= len(wire.RequestKey) {
		// Without a SYN, the key still says that this is the beginning.
		if _, err := new(wire.StartFrame).Parse(b); err == nil || !errors.Is(err, wire.ErrKey) {
			m.state = mpaStart
		}
	}
	if m.state == mpaStart {
		b = s.startup(h, g.seq, b)
	}
	if len(b) == 0 {
		return
	}
	seq := g.seq + uint32(len(g.data)-len(b))
	if m.state == mpaFull && m.d == nil {
		m.d = wire.NewDeframerAt(m.framing(&back.mpa), 0)
	}
	if m.state == mpaLost {
		s.resync(h, back, seq, b)
	}
	if m.state != mpaFull {
		return
	}
	for len(b) > 0 {
		f, rest, ok := m.d.Next(b)
		if !ok {
			s.partial(m)
			return
		}
		s.fpdu(h, back, &f)
		b = rest
	}
}

// partial names a packet in which no FPDU ends.
func (s *Stream) partial(m *mpaHalf) {
	if p := &s.p; len(p.PDUs) == 0 {
		p.Protocol = "iWARP"
		p.Note += fmt.Sprintf(", part of an FPDU (%d octets so far)", m.d.Pending())
	}
}

// skip passes over octets that the capture does not have.
func (s *Stream) skip(h, back *half, n int) {
	m := &h.mpa
	if m.state == mpaStart {
		m.state = mpaLost
	}
	if m.state != mpaFull {
		return
	}
	if m.d == nil {
		m.d = wire.NewDeframerAt(m.framing(&back.mpa), 0)
	}
	for n > 0 {
		f, rest, ok := m.d.Skip(n)
		if !ok && rest > 0 {
			m.state = mpaLost
			return
		}
		if ok {
			s.fpdu(h, back, &f)
		}
		n = rest
	}
}

// startup takes the first octets of a stream and returns what follows the
// start-up frame.
func (s *Stream) startup(h *half, seq uint32, b []byte) (rest []byte) {
	m, p := &h.mpa, &s.p
	before := len(m.start)
	whole := b
	if before > 0 {
		whole = append(m.start, b[:min(len(b), wire.StartFrameLen+wire.MaxPrivateData-before)]...)
	}
	start := new(MPAStart)
	rest, err := start.Parse(whole)
	switch {
	case err == nil:
	case errors.Is(err, wire.ErrShort):
		m.start = append(m.start[:0:0], whole...)
		if len(whole) >= len(wire.RequestKey) {
			p.Protocol = "MPA"
			p.Note += ", part of a start-up frame"
		}
		return nil
	case errors.Is(err, wire.ErrPrivateData):
		p.Protocol = "MPA"
		p.mark(MarkMalformed, err.Error())
		m.state, m.start = mpaNone, nil
		return nil
	default:
		m.state, m.start = mpaNone, nil
		return nil
	}
	used := len(whole) - len(rest) - before
	m.frame, m.known, m.base, m.state, m.start = start.StartFrame, true, seq+uint32(used), mpaFull, nil
	m.frame.PrivateData = nil // it belongs to the packet
	p.Protocol = "MPA"
	p.PDUs = append(p.PDUs, PDU{MPAStart: start})
	if start.Reply && start.Reject {
		p.mark(MarkRejected, "MPA reply rejects the connection")
	}
	return b[used:]
}

// framing is that of what m's side sends: as the frames of both say, or as far
// as one of them does.
func (m *mpaHalf) framing(peer *mpaHalf) wire.Framing { return wire.FramingTo(&peer.frame, &m.frame) }

// resync looks for an FPDU at the beginning of a segment, where most senders
// put it, after the stream was lost or began before the capture.
func (s *Stream) resync(h, back *half, seq uint32, b []byte) {
	m, p := &h.mpa, &s.p
	negotiated := m.known && back.mpa.known
	framing, at := m.framing(&back.mpa), uint64(seq-m.base)
	if !negotiated {
		framing, at = wire.Framing{CRC: framing.CRC}, 0
	}
	ok := looksLikeFPDU(b, &framing, at, negotiated)
	switch {
	case ok:
		m.state, m.d = mpaFull, wire.NewDeframerAt(framing, at)
		p.Protocol = "iWARP"
		p.mark(MarkMissingData, fmt.Sprintf("FPDUs found again at TCP octet %d", seq))
	case m.known || back.mpa.known:
		p.Protocol = "iWARP"
		p.mark(MarkMissingData, "the beginning of an FPDU is not known: octets before it are not in the capture")
	}
}

// looksLikeFPDU reports whether an FPDU may begin with b. Where the start-up was
// not seen, the whole FPDU must be there, and its CRC right, or zero as where
// CRCs are off: framing then says which.
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
	framing.CRC = f.Check == wire.CheckGood
	return framing.CRC || f.CRC == 0
}

// fpdu adds an FPDU to the packet in which it ends.
func (s *Stream) fpdu(h, back *half, f *wire.FPDU) {
	p := &s.p
	p.Protocol = "iWARP"
	d := &FPDU{FPDU: *f, Framing: h.mpa.framing(&back.mpa), Guessed: !h.mpa.known || !back.mpa.known}
	if d.Guessed {
		d.Framing.CRC = f.Check == wire.CheckGood || f.Check == wire.CheckBad
	}
	// The deframer's buffer is used again for the next one.
	at := len(s.arena)
	s.arena = append(s.arena, f.ULPDU...)
	d.ULPDU = s.arena[at:len(s.arena):len(s.arena)]
	err := d.Segment.Parse(d.ULPDU)
	d.HeadersComplete = err == nil
	p.PDUs = append(p.PDUs, PDU{FPDU: d})
	if err != nil && f.Check != wire.CheckMissing {
		p.mark(MarkMalformed, err.Error())
	}
	if f.Check == wire.CheckBad {
		p.mark(MarkChecksum, "CRC of an FPDU is wrong")
	}
	if f.MarkerFault {
		p.mark(MarkMalformed, "a marker and a ULPDU_Length disagree")
	}
	if d.HeadersComplete && !d.Segment.Control.Consistent() {
		p.mark(MarkMalformed, "opcode and T bit do not go together")
	}
	if d.HeadersComplete && d.Segment.Control.Opcode == wire.OpTerminate {
		p.mark(MarkNak, d.Segment.Terminate.Error.String())
	}
}
