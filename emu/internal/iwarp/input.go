package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// rxSegment is a segment that has come in.
type rxSegment struct {
	hdr  wire.Header
	raw  []byte // the whole segment
	body []byte // what follows the DDP header
}

// Input takes a segment of the peer. What it carries has been copied when Input
// returns. Segments that come after the end of the stream have no effect.
func (s *Stream) Input(segment []byte) {
	c := s.counters()
	c.SegmentsReceived++
	c.OctetsReceived += uint64(len(segment))
	if s.state != open {
		c.SegmentsDropped++
		return
	}
	a := rxSegment{raw: segment}
	var err error
	if a.body, err = a.hdr.Parse(segment); err != nil {
		s.refuse(wire.TermOpUnspecified, nil) // there is no header to return
		return
	}
	if s.defects().TaggedFlagIgnored && !s.parseByOpcode(&a) {
		return
	}
	s.dispatch(&a)
	s.startupDone, s.expectRTR = true, false
}

// dispatch checks what all segments have in common.
func (s *Stream) dispatch(a *rxSegment) {
	h := &a.hdr.Control
	info, known := h.Opcode.Info()
	switch {
	case h.DDPVersion != s.version && h.Tagged:
		s.refuse(wire.TermTaggedVersion, a)
	case h.DDPVersion != s.version && !h.Tagged:
		s.refuse(wire.TermUntaggedVersion, a)
	case h.RDMAPVersion != s.version:
		s.refuse(wire.TermOpVersion, a)
	case !known || h.Opcode > wire.OpTerminate && s.defects().NoExtensions || h.Tagged != info.Tagged:
		s.refuse(wire.TermOpOpcode, a)
	case h.Opcode == wire.OpWrite:
		s.receiveWrite(a)
	case h.Opcode == wire.OpReadResponse:
		s.receiveReadResponse(a)
	case h.Opcode == wire.OpTerminate:
		s.receiveTerminate(a)
	default:
		s.receiveUntagged(a, &info)
	}
}
