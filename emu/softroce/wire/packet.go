package wire

// Packet is a transport packet: the headers of its opcode, and the payload. Other headers
// are ignored by Append and zero after Parse.
type Packet struct {
	BTH          BTH
	RDETH        RDETH
	XRCETH       XRCETH
	DETH         DETH
	FETH         FETH
	RETH         RETH
	AtomicETH    AtomicETH
	AETH         AETH
	AtomicAckETH AtomicAckETH
	Imm          ImmDt
	IETH         IETH
	Payload      []byte
}

var errShortICRC = shortError("ICRC", ICRCLen)

// Parse decodes a UDP payload, from the BTH to the ICRC, which it does not
// check. Payload aliases b and holds neither pad nor ICRC.
//
// It checks lengths only: ErrShort if b ends within a header or the ICRC, ErrPad if there
// are fewer bytes than the pad count. A payload that the opcode forbids, and wrong padding,
// are not errors. A reserved opcode gives ErrOpcode, with BTH filled in.
func (p *Packet) Parse(b []byte) error {
	*p = Packet{}
	rest, err := p.BTH.Parse(b)
	if err != nil {
		return err
	}
	info := &opcodes[p.BTH.Opcode]
	if info.HeaderLen == 0 {
		return ErrOpcode
	}
	if info.Headers != 0 {
		if rest, err = p.parseExtensions(info.Headers, rest); err != nil {
			return err
		}
	}
	n := len(rest) - ICRCLen
	if n < 0 {
		return errShortICRC
	}
	if n -= int(p.BTH.PadCount); n < 0 {
		return ErrPad
	}
	p.Payload = rest[:n:n]
	return nil
}

// parseExtensions decodes the extension headers in set from the front of b, and returns the bytes
// that follow.
func (p *Packet) parseExtensions(set HeaderSet, b []byte) (rest []byte, err error) {
	if set&HasRDETH != 0 {
		if b, err = p.RDETH.Parse(b); err != nil {
			return nil, err
		}
	}
	if set&HasXRCETH != 0 {
		if b, err = p.XRCETH.Parse(b); err != nil {
			return nil, err
		}
	}
	if set&HasDETH != 0 {
		if b, err = p.DETH.Parse(b); err != nil {
			return nil, err
		}
	}
	if set&HasFETH != 0 {
		if b, err = p.FETH.Parse(b); err != nil {
			return nil, err
		}
	}
	if set&HasRETH != 0 {
		if b, err = p.RETH.Parse(b); err != nil {
			return nil, err
		}
	}
	if set&HasAtomicETH != 0 {
		if b, err = p.AtomicETH.Parse(b); err != nil {
			return nil, err
		}
	}
	if set&HasAETH != 0 {
		if b, err = p.AETH.Parse(b); err != nil {
			return nil, err
		}
	}
	if set&HasAtomicAckETH != 0 {
		if b, err = p.AtomicAckETH.Parse(b); err != nil {
			return nil, err
		}
	}
	if set&HasImm != 0 {
		if b, err = p.Imm.Parse(b); err != nil {
			return nil, err
		}
	}
	if set&HasIETH != 0 {
		if b, err = p.IETH.Parse(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// AppendHeaders appends the BTH and the extension headers of its opcode; none if the opcode
// is reserved. The caller sets PadCount, and appends payload, pad and ICRC.
func (p *Packet) AppendHeaders(b []byte) []byte {
	b = p.BTH.Append(b)
	set := opcodes[p.BTH.Opcode].Headers
	if set == 0 {
		return b
	}
	if set&HasRDETH != 0 {
		b = p.RDETH.Append(b)
	}
	if set&HasXRCETH != 0 {
		b = p.XRCETH.Append(b)
	}
	if set&HasDETH != 0 {
		b = p.DETH.Append(b)
	}
	if set&HasFETH != 0 {
		b = p.FETH.Append(b)
	}
	if set&HasRETH != 0 {
		b = p.RETH.Append(b)
	}
	if set&HasAtomicETH != 0 {
		b = p.AtomicETH.Append(b)
	}
	if set&HasAETH != 0 {
		b = p.AETH.Append(b)
	}
	if set&HasAtomicAckETH != 0 {
		b = p.AtomicAckETH.Append(b)
	}
	if set&HasImm != 0 {
		b = p.Imm.Append(b)
	}
	if set&HasIETH != 0 {
		b = p.IETH.Append(b)
	}
	return b
}

// Append appends the packet as a UDP payload: headers, payload, zero pad, and four zero
// bytes for ICRC.Seal. The pad count follows from the length of the payload, not from BTH.
func (p *Packet) Append(b []byte) []byte {
	start, pad := len(b), PadLen(len(p.Payload))
	b = p.AppendHeaders(b)
	b[start+1] = b[start+1]&^(3<<bthPadShift) | uint8(pad)<<bthPadShift
	b = append(b, p.Payload...)
	return append(b, zeros[:pad+ICRCLen]...)
}

// zeros is the longest pad and an empty ICRC.
var zeros [3 + ICRCLen]byte
