package iwarp

import "encoding/binary"

// ParseSegment reads a ULPDU. It takes any octets: what is left over is payload, and
// of a segment that is too short for its header the fields of that are nil. Append
// gives the same octets again. The segment keeps no reference to b.
//
// The T bit decides which header is read, as it does for a receiver.
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

// parseHeaders reads a DDP header that is all there, and the RDMAP header behind it
// if that is: of one that is cut short the octets are left as payload.
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
		s.Read, b = parseAs[ReadRequestHeader](b)
	case OpTerminate:
		s.Terminate, b = parseTerminate(b)
	case OpAtomicRequest:
		s.AtomicRequest, b = parseAs[AtomicRequestHeader](b)
	case OpAtomicResponse:
		s.AtomicResponse, b = parseAs[AtomicResponseHeader](b)
	case OpImmediate, OpImmediateSE:
		s.Immediate, b = parseAs[ImmediateHeader](b)
	}
	return b
}
