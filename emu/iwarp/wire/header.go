package wire

// Header is the header of a DDP segment: the control octets, and Tagged or Untagged by the T
// bit. The other one is ignored by Append and zero after Parse.
type Header struct {
	Control  Control
	Tagged   Tagged
	Untagged Untagged
}

// Len returns the length of h in octets.
func (h *Header) Len() int {
	if h.Control.Tagged {
		return ControlLen + TaggedLen
	}
	return ControlLen + UntaggedLen
}

// Append appends h in wire order and returns the extended slice.
func (h *Header) Append(b []byte) []byte {
	b = h.Control.Append(b)
	if h.Control.Tagged {
		return h.Tagged.Append(b)
	}
	return h.Untagged.Append(b)
}

// Parse decodes h from the front of b and returns the octets that follow.
func (h *Header) Parse(b []byte) (rest []byte, err error) {
	*h = Header{}
	if b, err = h.Control.Parse(b); err != nil {
		return nil, err
	}
	if h.Control.Tagged {
		return h.Tagged.Parse(b)
	}
	return h.Untagged.Parse(b)
}
