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
	if h := s.rdmapHeader(); h != nil {
		if b, err = h.Parse(b); err != nil {
			return err
		}
	}
	s.Payload = b[:len(b):len(b)]
	return nil
}

// rdmapHeader returns the RDMAP header of the opcode, which follows the DDP header; nil if it has
// none. Only untagged messages have one.
func (s *Segment) rdmapHeader() interface {
	Append(b []byte) []byte
	Parse(b []byte) (rest []byte, err error)
} {
	switch op := s.Control.Opcode; {
	case s.Control.Tagged:
		return nil
	case op == OpReadRequest:
		return &s.ReadRequest
	case op == OpTerminate:
		return &s.Terminate
	case op == OpImmediate || op == OpImmediateSE:
		return &s.Immediate
	case op == OpAtomicRequest:
		return &s.AtomicRequest
	case op == OpAtomicResponse:
		return &s.AtomicResponse
	}
	return nil
}

// AppendHeaders appends the DDP header and the RDMAP header of the opcode, if it has one, and
// returns the extended slice.
func (s *Segment) AppendHeaders(b []byte) []byte {
	b = s.Header.Append(b)
	if h := s.rdmapHeader(); h != nil {
		b = h.Append(b)
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
