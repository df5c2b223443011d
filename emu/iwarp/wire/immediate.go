package wire

// Immediate is the eight octets of an Immediate Data message (RFC 7306, section 6).
type Immediate [ImmediateLen]byte

var errShortImmediate = shortError("Immediate Data", ImmediateLen)

// Append appends h and returns the extended slice.
func (h Immediate) Append(b []byte) []byte { return append(b, h[:]...) }

// Parse decodes h from the front of b and returns the octets that follow.
func (h *Immediate) Parse(b []byte) (rest []byte, err error) {
	if len(b) < ImmediateLen {
		return nil, errShortImmediate
	}
	*h = Immediate(b)
	return b[ImmediateLen:], nil
}
