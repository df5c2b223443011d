package iwarp

import "github.com/fabrictest/fabrictest/emu/iwarp/wire"

// SendEmptyWrite schedules an RDMA Write of no octets ahead of all posted requests. It wakes a peer, such
// as soft-iWARP of Linux, that reads FPDUs which arrived before its Reply only when more data arrives. It
// completes no request, and receivers ignore it, except that immediate data sent next looks like that
// of this Write.
//
// SendEmptyWrite reports false if the stream has ended, or if a message is partly sent: its rest wakes
// the peer.
func (s *Stream) SendEmptyWrite() bool {
	if s.state != open || s.inProgress != noSource {
		return false
	}
	s.turn = emptyWriter
	return true
}

// AnySTag is the STag of messages without payload. Receivers need not check it, but some
// devices reject 0.
const AnySTag wire.STag = 1

// buildEmptyWrite builds the empty Write that SendEmptyWrite scheduled.
func (s *Stream) buildEmptyWrite(g *Segment) {
	s.turn = responder
	g.Header = wire.Tagged{STag: AnySTag}.Append(s.control(wire.OpWrite, lastSegment).Append(g.Header))
}
