package iwarp

// InSiwBitOrder parses a Terminate in the bit order of siw on little-endian hosts, which
// exchanges layer and type and puts the three header bits at the low end. It returns false
// if the control word is in the order of the RFC.
//
// Some control words are valid in both orders. started tells whether MPA start-up has
// finished, which resolves them: some causes occur only before, some only after.
func (s Segment) InSiwBitOrder(started bool) (Segment, bool) {
	if s.Terminate == nil {
		return Segment{}, false
	}
	b := s.Append(nil)
	at := len(s.appendDDP(nil))
	ctrl := b[at : at+terminateLen]
	if !inSiwOrder(ctrl, started) {
		return Segment{}, false
	}
	ctrl[0] = ctrl[0]<<4 | ctrl[0]>>4
	ctrl[2] = ctrl[2]&0x01<<7 | ctrl[2]&0x02<<5 | ctrl[2]&0x04<<3
	return ParseSegment(b), true
}

func inSiwOrder(ctrl []byte, started bool) bool {
	code := ctrl[1]
	switch {
	case ctrl[2]&0x07 != 0:
		return true
	case ctrl[2]&0xe0 != 0:
		return false
	}
	switch ctrl[0] {
	case 0x21: // layer 2 has no type 1
		return true
	case 0x02: // MPA errors in siw's order, remote operation errors in the RFC's
		return code >= 2 && code <= 4 || !started && (code == 6 || code == 7)
	case 0x20: // the reverse
		return started && (code == 5 || code == 6)
	case 0x10: // protection errors in siw's order; in the RFC's only code 0 is valid
		return code != 0
	default:
		return false // equal in both orders, or valid only in the RFC's
	}
}
