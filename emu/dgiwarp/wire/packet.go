package wire

// Packet is a packet without its CRC. Blocks that its kind and flags do not include are
// ignored by Append and zero after Parse.
type Packet struct {
	Header
	Ack       Ack
	Data      Data
	Challenge Challenge
	Refusal   Refusal
	// ULPDU is a DDP segment; nil if the packet carries none.
	ULPDU []byte
}

// Parse decodes b, a whole UDP payload that ends in a CRC. It does not check the CRC; see
// CheckCRC. ULPDU aliases b.
func (p *Packet) Parse(b []byte) (err error) {
	*p = Packet{}
	if len(b) < HeaderLen+CRCLen {
		return errShortHeader
	}
	b = b[: len(b)-CRCLen : len(b)-CRCLen]
	if b[0]>>4 != Version {
		return ErrVersion
	}
	if b, err = p.Header.Parse(b); err != nil {
		return err
	}
	switch p.Kind {
	case KindUD:
		p.ULPDU = b
		return nil
	case KindRD:
		return p.parseRD(b)
	case KindChallenge:
		b, err = p.Challenge.Parse(b)
	case KindRefusal:
		b, err = p.Refusal.Parse(b)
	default:
		return ErrKind
	}
	return checkEnd(b, err)
}

// parseRD decodes what follows the header of a KindRD packet: the Ack and the Data with a
// ULPDU, each if its flag is set.
func (p *Packet) parseRD(b []byte) (err error) {
	if p.Flags.Has(FlagAck) {
		if b, err = p.Ack.Parse(b); err != nil {
			return err
		}
	}
	if !p.Flags.Has(FlagData) {
		return checkEnd(b, nil)
	}
	p.ULPDU, err = p.Data.Parse(b, p.Flags.Has(FlagStart))
	return err
}

// checkEnd returns err, the error of parsing the last block of a packet, or else ErrLong if
// octets follow that block.
func checkEnd(rest []byte, err error) error {
	if err == nil && len(rest) > 0 {
		return ErrLong
	}
	return err
}

// AppendHeaders appends all that precedes the ULPDU: the header and the blocks of the packet's kind
// and flags. The caller appends ULPDU and CRC.
func (p *Packet) AppendHeaders(b []byte) []byte {
	b = p.Header.Append(b)
	switch p.Kind {
	case KindRD:
		if p.Flags.Has(FlagAck) {
			b = p.Ack.Append(b)
		}
		if p.Flags.Has(FlagData) {
			b = p.Data.Append(b, p.Flags.Has(FlagStart))
		}
	case KindChallenge:
		b = p.Challenge.Append(b)
	case KindRefusal:
		b = p.Refusal.Append(b)
	}
	return b
}

// Append appends a whole packet, CRC included, and returns the extended slice.
func (p *Packet) Append(b []byte) []byte {
	from := len(b)
	return AppendCRC(append(p.AppendHeaders(b), p.ULPDU...), from)
}
