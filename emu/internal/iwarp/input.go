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
		if s.defects().TermRepeated {
			s.complainAgain(segment)
		}
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
	case h.DDPVersion != s.version && h.Tagged && !(h.Opcode == wire.OpReadResponse && s.defects().ReadResponseDDPVersion):
		s.refuse(wire.TermTaggedVersion, a)
	case h.DDPVersion != s.version && !h.Tagged:
		s.refuse(wire.TermUntaggedVersion, a)
	case h.RDMAPVersion != s.version && !(h.Tagged && s.defects().TaggedVersionUnchecked):
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

// parseByOpcode is Defects.TaggedFlagIgnored: the header is the one that the opcode
// calls for.
func (s *Stream) parseByOpcode(a *arrival) bool {
	c := a.hdr.Control
	if info, ok := c.Opcode.Info(); !ok || info.Tagged == c.Tagged {
		return true
	}
	c.Tagged = !c.Tagged
	a.hdr = wire.Header{Control: c}
	var err error
	if rest := a.raw[wire.ControlLen:]; c.Tagged {
		a.body, err = a.hdr.Tagged.Parse(rest)
	} else {
		a.body, err = a.hdr.Untagged.Parse(rest)
	}
	if err != nil {
		s.refuse(wire.TermOpUnspecified, nil)
	}
	return err == nil
}
