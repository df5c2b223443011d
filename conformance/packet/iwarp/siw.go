package iwarp

// SiwReading reads a Terminate as Linux's siw means it on a little-endian machine,
// where the fields of the control word are the other way round: layer and type
// change places, and the three bits are at the lower end of their octet. It returns
// false for what is in the order of the RFC, as far as one can tell.
//
// Some control words can be either; which they are then depends on whether MPA's
// start-up has finished, since some causes arise only before and some only after.
func (s Segment) SiwReading(started bool) (Segment, bool) {
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
	case 0x02: // MPA's errors for siw, remote operation errors for the RFC
		return code >= 2 && code <= 4 || !started && (code == 6 || code == 7)
	case 0x20: // and the reverse
		return started && (code == 5 || code == 6)
	case 0x10: // protection errors for siw; the RFC has one DDP catastrophe, code 0
		return code != 0
	default:
		return false // the same both ways, or known to the RFC only
	}
}
