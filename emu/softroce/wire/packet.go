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
	if len(b) < info.HeaderLen {
		return info.Headers.shortError(len(rest))
	}
	if info.Headers != 0 {
		rest = p.parseExtensions(info.Headers, rest)
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

// parseExtensions decodes the extension headers in set from the front of b, which holds all of
// them, and returns the bytes that follow.
func (p *Packet) parseExtensions(set HeaderSet, b []byte) (rest []byte) {
	if set&HasRDETH != 0 {
		b = p.RDETH.parse(b)
	}
	if set&HasXRCETH != 0 {
		b = p.XRCETH.parse(b)
	}
	if set&HasDETH != 0 {
		b = p.DETH.parse(b)
	}
	if set&HasFETH != 0 {
		b = p.FETH.parse(b)
	}
	if set&HasRETH != 0 {
		b = p.RETH.parse(b)
	}
	if set&HasAtomicETH != 0 {
		b = p.AtomicETH.parse(b)
	}
	if set&HasAETH != 0 {
		b = p.AETH.parse(b)
	}
	if set&HasAtomicAckETH != 0 {
		b = p.AtomicAckETH.parse(b)
	}
	if set&HasImm != 0 {
		b = p.Imm.parse(b)
	}
	if set&HasIETH != 0 {
		b = p.IETH.parse(b)
	}
	return b
}

// AppendHeaders appends the BTH and the extension headers of its opcode; a reserved opcode has no
// extension headers. The caller sets PadCount, and appends payload, pad and ICRC.
func (p *Packet) AppendHeaders(b []byte) []byte {
	b = p.BTH.Append(b)
	set := opcodes[p.BTH.Opcode].Headers
	if set == 0 {
		return b
	}
	if set&HasRDETH != 0 {
		b = p.RDETH.appendTo(b)
	}
	if set&HasXRCETH != 0 {
		b = p.XRCETH.appendTo(b)
	}
	if set&HasDETH != 0 {
		b = p.DETH.appendTo(b)
	}
	if set&HasFETH != 0 {
		b = p.FETH.appendTo(b)
	}
	if set&HasRETH != 0 {
		b = p.RETH.appendTo(b)
	}
	if set&HasAtomicETH != 0 {
		b = p.AtomicETH.appendTo(b)
	}
	if set&HasAETH != 0 {
		b = p.AETH.appendTo(b)
	}
	if set&HasAtomicAckETH != 0 {
		b = p.AtomicAckETH.appendTo(b)
	}
	if set&HasImm != 0 {
		b = p.Imm.appendTo(b)
	}
	if set&HasIETH != 0 {
		b = p.IETH.appendTo(b)
	}
	return b
}

// Append appends the packet as a UDP payload: headers, payload, zero pad, and four zero
// bytes for ICRC.Seal. The pad count follows from the length of the payload, not from BTH.
func (p *Packet) Append(b []byte) []byte {
	start, pad := len(b), PadLen(len(p.Payload))
	b = p.AppendHeaders(b)
	padByte := &b[start+1] // of the BTH
	*padByte = *padByte&^(3<<bthPadShift) | uint8(pad)<<bthPadShift
	b = append(b, p.Payload...)
	return append(b, zeros[:pad+ICRCLen]...)
}

// zeros is the longest pad and an empty ICRC.
var zeros [3 + ICRCLen]byte
