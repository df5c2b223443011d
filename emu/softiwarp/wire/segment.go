package wire

// Segment is a whole ULPDU: a DDP segment with the RDMAP header that its opcode
// calls for. Headers that it does not call for are ignored when it is written
// and zero after it was read.
type Segment struct {
	Header
	ReadRequest    ReadRequest
	Terminate      Terminate
	AtomicRequest  AtomicRequest
	AtomicResponse AtomicResponse
	Immediate      Immediate
	// Payload is all that follows, also where the opcode has none.
	Payload []byte
}

// Parse decodes a ULPDU. Payload aliases b.
//
// Only lengths are validated. Versions, reserved bits and numbers may be
// anything, an opcode may be unassigned. One whose T bit is not what the opcode
// calls for (see Consistent) has no RDMAP header: all after the DDP header is
// payload.
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

// hasRDMAP reports whether a header of RDMAP follows that of DDP: all of those
// belong to untagged messages.
func (s *Segment) hasRDMAP() bool {
	return !s.Control.Tagged && opcodes[s.Control.Opcode&opcodeMask].Header != 0
}

// AppendHeaders appends all but the payload.
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

// Consistent reports whether the T bit is the one that the opcode calls for.
func (c Control) Consistent() bool {
	info, ok := c.Opcode.Info()
	return ok && info.Tagged == c.Tagged
}
