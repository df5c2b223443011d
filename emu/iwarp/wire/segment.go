package wire

// Segment is a DDP segment (a ULPDU) with the RDMAP header of its opcode. Other headers are
// ignored by Append and zero after Parse.
type Segment struct {
	Header
	ReadRequest    ReadRequest
	Terminate      Terminate
	AtomicRequest  AtomicRequest
	AtomicResponse AtomicResponse
	Immediate      Immediate
	// Payload is the rest, also if the opcode has no payload.
	Payload []byte
}

// Parse decodes a ULPDU. Payload aliases b.
//
// It checks lengths only. If the T bit is wrong for the opcode (see Consistent), the segment
// has no RDMAP header: all after the DDP header is payload.
func (s *Segment) Parse(b []byte) (err error) {
	*s = Segment{}
	if b, err = s.Header.Parse(b); err != nil {
		return err
	}
	if s.hasRDMAP() {
		if b, err = s.parseRDMAP(b); err != nil {
			return err
		}
	}
	s.Payload = b[:len(b):len(b)]
	return nil
}

// parseRDMAP decodes the RDMAP header of the opcode and returns the octets that follow.
func (s *Segment) parseRDMAP(b []byte) (rest []byte, err error) {
	switch s.Control.Opcode {
	case OpReadRequest:
		return s.ReadRequest.Parse(b)
	case OpTerminate:
		return s.Terminate.Parse(b)
	case OpImmediate, OpImmediateSE:
		return s.Immediate.Parse(b)
	case OpAtomicRequest:
		return s.AtomicRequest.Parse(b)
	case OpAtomicResponse:
		return s.AtomicResponse.Parse(b)
	}
	return b, nil
}

// hasRDMAP reports whether an RDMAP header follows the DDP header. Only untagged messages have
// one.
func (s *Segment) hasRDMAP() bool {
	return !s.Control.Tagged && opcodes[s.Control.Opcode&opcodeMask].Header != 0
}

// AppendHeaders appends the DDP header and the RDMAP header of the opcode, if it has one, and
// returns the extended slice.
func (s *Segment) AppendHeaders(b []byte) []byte {
	b = s.Header.Append(b)
	if !s.hasRDMAP() {
		return b
	}
	switch s.Control.Opcode {
	case OpReadRequest:
		return s.ReadRequest.Append(b)
	case OpTerminate:
		return s.Terminate.Append(b)
	case OpImmediate, OpImmediateSE:
		return s.Immediate.Append(b)
	case OpAtomicRequest:
		return s.AtomicRequest.Append(b)
	case OpAtomicResponse:
		return s.AtomicResponse.Append(b)
	}
	return b
}

// Append appends the segment and returns the extended slice.
func (s *Segment) Append(b []byte) []byte { return append(s.AppendHeaders(b), s.Payload...) }

// Consistent reports whether the T bit is right for the opcode.
func (c Control) Consistent() bool {
	info, ok := c.Opcode.Info()
	return ok && info.Tagged == c.Tagged
}
