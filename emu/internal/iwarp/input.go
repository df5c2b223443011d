package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// arrival is a segment that has come in.
type arrival struct {
	hdr  wire.Header
	raw  []byte // the whole segment
	body []byte // what follows the DDP header
}

// Input takes a segment of the peer. What it carries has been copied when Input
// returns. Segments that come after the end of the stream have no effect.
func (s *Stream) Input(segment []byte) {
	c := s.count()
	c.SegmentsReceived++
	c.OctetsReceived += uint64(len(segment))
	if s.state != open {
		c.SegmentsDropped++
		return
	}
	a := arrival{raw: segment}
	var err error
	if a.body, err = a.hdr.Parse(segment); err != nil {
		s.refuse(wire.TermOpUnspecified, nil) // there is no header to return
		return
	}
	if s.defects().TaggedFlagIgnored && !s.parseByOpcode(&a) {
		return
	}
	s.dispatch(&a)
	s.heard, s.rtr = true, false
}

// dispatch checks what all segments have in common.
func (s *Stream) dispatch(a *arrival) {
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
		s.write(a)
	case h.Opcode == wire.OpReadResponse:
		s.readResponse(a)
	case h.Opcode == wire.OpTerminate:
		s.terminate(a)
	default:
		s.message(a, &info)
	}
}
