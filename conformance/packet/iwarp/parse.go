package iwarp

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// ParseSegment parses a ULPDU of any octets. Fields of a truncated header are nil, and
// remaining octets are payload; Append returns the same octets. The T bit decides which
// header is parsed. The result does not alias b.
func ParseSegment(b []byte) Segment {
	b = append([]byte{}, b...)
	var s Segment
	if len(b) >= controlLen {
		s.parseControl(b[0], b[1])
		if len(b) >= ddpHeaderLen(b[0]) {
			s.Payload = s.parseHeaders(b)
			return s
		}
	}
	s.Verbatim = b
	return s
}

func (s *Segment) parseControl(ctrl, ulp byte) {
	s.DDP = DDP{
		Tagged:   new(ctrl&bitTagged != 0),
		Last:     new(ctrl&bitLast != 0),
		Reserved: new(ctrl >> shiftDDPReserved & maskDDPReserved),
		Version:  new(ctrl & maskVersion),
	}
	s.RDMAP = RDMAP{
		Version:  new(ulp >> shiftRDMAPVersion),
		Reserved: new(ulp >> shiftRDMAPReserved & maskReserved),
		Opcode:   new(Opcode(ulp & maskOpcode)),
	}
}

// parseHeaders parses a complete DDP header, and the RDMAP header if it is complete; a
// truncated one is left as payload.
func (s *Segment) parseHeaders(b []byte) (rest []byte) {
	be := binary.BigEndian
	if *s.DDP.Tagged {
		s.DDP.STag, s.DDP.TO = new(be.Uint32(b[2:])), new(be.Uint64(b[6:]))
		return b[taggedLen:]
	}
	s.RDMAP.InvalidateSTag = new(be.Uint32(b[2:]))
	s.DDP.QN, s.DDP.MSN, s.DDP.MO = new(be.Uint32(b[6:])), new(be.Uint32(b[10:])), new(be.Uint32(b[14:]))
	b = b[untaggedLen:]
	switch *s.RDMAP.Opcode {
	case OpReadRequest:
		s.Read, b = packet.ParseAs[ReadRequestHeader](b)
	case OpTerminate:
		s.Terminate, b = parseTerminate(b)
	case OpAtomicRequest:
		s.AtomicRequest, b = packet.ParseAs[AtomicRequestHeader](b)
	case OpAtomicResponse:
		s.AtomicResponse, b = packet.ParseAs[AtomicResponseHeader](b)
	case OpImmediate, OpImmediateSE:
		s.Immediate, b = packet.ParseAs[ImmediateHeader](b)
	}
	return b
}
