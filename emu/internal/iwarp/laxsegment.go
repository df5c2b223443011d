package iwarp

import "github.com/fabrictest/fabrictest/emu/softiwarp/wire"

// numberIgnored reports whether a layer that is Lax does not look at the number of
// the segment at hand.
func (s *Stream) numberIgnored(op wire.Opcode) bool {
	switch lax := s.lax(); op {
	case wire.OpReadRequest:
		return lax.ReadNumberUnchecked
	case wire.OpAtomicResponse, wire.OpImmediate, wire.OpImmediateSE:
		return lax.AnswerNumberUnchecked
	case wire.OpSend, wire.OpSendInv, wire.OpSendSE, wire.OpSendSEInv:
		return lax.SecondSegmentNumber && s.recv != nil
	}
	return false
}
