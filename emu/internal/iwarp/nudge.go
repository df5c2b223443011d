package iwarp

import "github.com/fabrictest/fabrictest/emu/softiwarp/wire"

// Nudge has the next message that leaves be an RDMA Write of no octets, ahead of
// all that is posted, even of what has to wait. It is no request of anybody and
// completes nothing. To its receiver it means nothing (by RFC 5041 not even its
// STag is looked at), unless immediate data follows at once that was sent alone:
// that then seems to belong to it. Nudge reports false if a message is half out:
// what is left of that is as good.
func (s *Stream) Nudge() bool {
	if s.state != open || s.inProgress != noSource {
		return false
	}
	s.turn = nudger
	return true
}

// AnySTag is what a message of no octets names, where noSource says what. It means
// nothing, but some devices mind 0.
const AnySTag wire.STag = 1

// sendNudge makes the Write of a nudge, a single segment.
func (s *Stream) sendNudge(g *Segment) {
	s.turn = responder
	g.Header = wire.Tagged{STag: AnySTag}.Append(s.control(wire.OpWrite, true).Append(g.Header))
}
