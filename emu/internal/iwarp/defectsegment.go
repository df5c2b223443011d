package iwarp

import "github.com/fabrictest/fabrictest/emu/softiwarp/wire"

// numberIgnored reports whether a layer that is Defects does not look at the number of
// the segment at hand.
func (s *Stream) numberIgnored(op wire.Opcode) bool {
	switch defects := s.defects(); op {
	case wire.OpReadRequest:
		return defects.ReadNumberUnchecked
	case wire.OpAtomicResponse, wire.OpImmediate, wire.OpImmediateSE:
		return defects.AnswerNumberUnchecked
	case wire.OpSend, wire.OpSendInv, wire.OpSendSE, wire.OpSendSEInv:
		return defects.SecondSegmentNumber && s.recv != nil
	}
	return false
}
