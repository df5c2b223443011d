package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// rxSegment is a received segment.
type rxSegment struct {
	hdr  wire.Header
	raw  []byte // the whole segment
	body []byte // after the DDP header
}

// Input handles a segment of the peer. It keeps no reference to segment. After the end of the
// stream it only counts segments. The first handled segment ends the connection's start-up.
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
	if s.policy().HeaderByOpcode && !s.parseByOpcode(&a) {
		return
	}
	s.dispatch(&a)
	s.startupDone, s.expectRTR = true, false
}

// dispatch checks the version and opcode of a segment and calls the handler of the opcode.
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
	case !known || h.Opcode > wire.OpTerminate && s.policy().NoExtensions || h.Tagged != info.Tagged:
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

// parseByOpcode implements the policy HeaderByOpcode: it parses the header that belongs to the
// opcode, whatever the T bit says. It reports false if it has ended the stream.
func (s *Stream) parseByOpcode(a *rxSegment) bool {
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
