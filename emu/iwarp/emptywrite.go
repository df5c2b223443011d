package iwarp

import "github.com/fabrictest/fabrictest/emu/iwarp/wire"

// SendEmptyWrite makes an RDMA Write of no octets the next message, before all posted requests. It
// wakes a peer such as soft-iWARP of Linux: FPDUs that arrive there before the MPA Reply is sent
// remain unread until more data arrives. The Write completes no request, and receivers ignore it,
// except that they take immediate data that is sent next for the immediate data of this Write.
//
// SendEmptyWrite reports false if the stream has ended, or if a message is partly sent: the rest of
// that message wakes the peer.
func (s *Stream) SendEmptyWrite() bool {
	if s.state != open || s.inProgress != noSource {
		return false
	}
	s.preferred = emptyWriter
	return true
}

// AnySTag is the STag of messages without payload. Receivers need not check it; some reject 0.
const AnySTag wire.STag = 1

// buildEmptyWrite builds the empty Write that SendEmptyWrite scheduled.
func (s *Stream) buildEmptyWrite(g *Segment) {
	s.preferred = responder
	g.Header = wire.Tagged{STag: AnySTag}.Append(s.control(wire.OpWrite, lastSegment).Append(g.Header))
}
