package wire

// Packet is a whole transport packet: the headers its opcode calls for, and
// its payload. Headers that the opcode does not call for are ignored when it
// is written and zero after it was read.
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
// Only lengths are validated: ErrShort if b ends within a header or the ICRC,
// ErrPad if there are fewer bytes than the pad count says. An opcode that
// forbids a payload may still come with one, and pad bytes and pad count may
// be wrong (see PadOK). A reserved opcode gives ErrOpcode, with BTH filled in
// so that the QP it is for can be found.
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

// AppendHeaders appends the BTH as it stands and the extension headers that
// its opcode calls for; none if the opcode is reserved. Payload, pad and ICRC
// are left to the caller, and so is PadCount.
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

// Append appends the packet as it goes into a UDP datagram: headers, payload,
// zero pad, and four zero bytes where ICRC.Seal puts the ICRC. The pad count
// on the wire is what the payload's length calls for, whatever BTH says.
func (p *Packet) Append(b []byte) []byte {
	start, pad := len(b), PadLen(len(p.Payload))
	b = p.AppendHeaders(b)
	b[start+1] = b[start+1]&^(3<<bthPadShift) | uint8(pad)<<bthPadShift
	b = append(b, p.Payload...)
	return append(b, zeros[:pad+ICRCLen]...)
}

// zeros is the longest pad with the place of the ICRC.
var zeros [3 + ICRCLen]byte

// PadOK reports whether the pad count is the one that the payload's length
// calls for. It is not if the packet's length is no multiple of four.
func (p *Packet) PadOK() bool {
	return int(p.BTH.PadCount) == PadLen(len(p.Payload))
}
