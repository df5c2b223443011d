package iwarp

import (
	"math"
	"slices"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// What a layer that is Defects says when all is said.

const (
	complaints = 16   // how many Terminates may wait
	lastWords  = 64   // how many segments may follow one
	wordLen    = 1024 // and how long they are
)

// complainAgain finds fault with a segment behind one that was wrong, as long as
// the Terminate for that has not left.
func (s *Stream) complainAgain(segment []byte) {
	a := arrival{raw: segment}
	var err error
	if a.body, err = a.hdr.Parse(segment); err != nil || s.state != terminating || len(s.defectState.again) == complaints {
		return
	}
	if e, wrong := s.fault(&a); wrong {
		s.defectState.again = append(s.defectState.again, s.describe(e, &a.hdr, len(segment)))
	}
}

// fault is what is wrong with a segment by itself, if anything is.
func (s *Stream) fault(a *arrival) (e wire.TermError, wrong bool) {
	c, t := &a.hdr.Control, &a.hdr.Tagged
	info, known := c.Opcode.Info()
	switch n := uint64(len(a.body)); {
	case c.DDPVersion != s.version && c.Tagged:
		return wire.TermTaggedVersion, true
	case c.DDPVersion != s.version:
		return wire.TermUntaggedVersion, true
	case c.RDMAPVersion != s.version:
		return wire.TermOpVersion, true
	case !known || c.Tagged != info.Tagged:
		return wire.TermOpOpcode, true
	case c.Opcode == wire.OpWrite && n > 0:
		if _, _, err := s.remote(t.STag, t.TO, n, verbs.AccessRemoteWrite); err != nil {
			return s.placement(err, t.TO, n), true
		}
	case !c.Tagged && c.Opcode != wire.OpTerminate && a.hdr.Untagged.QN != info.Queue:
		return wire.TermUntaggedQN, true
	}
	return e, false
}

// drainBehind makes segments of the requests that wait, to be sent behind a
// Terminate. It reports false if the stream has ended meanwhile, by one of them.
func (s *Stream) drainBehind() bool {
	f := s.defectState
	if f.draining {
		return true
	}
	f.draining = true
	defer func() { f.draining = false }()
	given, ord := s.given, s.ord
	var g Segment
	for len(f.behind) < lastWords && s.state == open && s.sending != nil {
		s.ord, s.outstanding = math.MaxUint16, 0
		if !s.Output(wordLen, &g) {
			break
		}
		f.behind = append(f.behind, slices.Concat(append([][]byte{g.Header}, g.Payload...)...))
	}
	s.given, s.ord = given, ord
	return s.state == open
}

// sendBehind makes the next segment that follows a Terminate.
func (s *Stream) sendBehind(g *Segment) bool {
	f := s.defectState
	if s.state != ended || len(f.behind) == 0 {
		return false
	}
	g.Header, f.behind = append(g.Header, f.behind[0]...), f.behind[1:]
	return true
}
