package ib

import "github.com/fabrictest/fabrictest/conformance/packet"

// String formats the packet as a line of a ladder diagram: "SEND_ONLY psn 100 AckReq 64 B",
// "NAK psn 103 sequence msn 5". It shows the set fields, and a wrong ICRC of a parsed packet.
func (p Packet) String() string {
	l := packet.Line{p.title()}
	if p.BTH.PSN != nil && p.Opcode() != OpCNP {
		l.Addf("psn %d", *p.BTH.PSN)
	}
	addHeaders(&l, p)
	addBits(&l, p.BTH)
	info, known := p.Info()
	// The length says nothing if the opcode has no payload, or the reserved bytes of a CNP.
	omitLength := known && (info.Payload == PayloadCNP || info.Payload == PayloadNone && len(p.Payload) == 0)
	switch {
	case p.Body != nil:
		l.Addf("%d B behind the BTH", len(p.Body))
	case p.Payload != nil && !omitLength:
		l.Addf("%d B", len(p.Payload))
	}
	switch {
	case p.raw == nil:
	case p.ICRC == nil:
		l.Addf("cut short")
	case p.CheckICRC() != nil:
		l.Addf("wrong ICRC")
	}
	return l.String()
}

// title names the packet by the acknowledgement's kind, the CM message to QP 1, or the opcode.
func (p Packet) title() string {
	op := p.Opcode()
	switch {
	case p.BTH.Opcode == nil:
		return "any packet"
	case op.Operation() == OpAcknowledge && p.AETH != nil:
		name := value(p.AETH.Kind, AckPositive).String()
		if t := op.Transport(); t != RC {
			name = t.String() + " " + name
		}
		return name
	case op == OpUDSendOnly && p.DestQP() == GSIQPN:
		if h, m, err := p.CM(); err == nil {
			return describeCM(h, m)
		}
	}
	return op.String()
}

// addHeaders adds the fields of extension headers, without a DETH to QP 1, and the QP of a CNP.
func addHeaders(l *packet.Line, p Packet) {
	if p.Opcode() == OpCNP {
		packet.AddField(l, "qp %#x", p.BTH.DestQP)
	}
	if h := p.XRCETH; h != nil {
		packet.AddField(l, "srq %#x", h.SRQ)
	}
	if h := p.DETH; h != nil && !(p.Opcode() == OpUDSendOnly && p.DestQP() == GSIQPN) {
		packet.AddField(l, "qkey %#x", h.QKey)
		packet.AddField(l, "from %#x", h.SrcQP)
	}
	if h := p.FETH; h != nil {
		packet.AddField(l, "placement %d", h.Placement)
		packet.AddField(l, "selectivity %d", h.Selectivity)
	}
	if h := p.RETH; h != nil {
		packet.AddField(l, "va %#x", h.VA)
		packet.AddField(l, "rkey %#x", h.RKey)
		packet.AddField(l, "len %d", h.Len)
	}
	if h := p.AtomicETH; h != nil {
		packet.AddField(l, "va %#x", h.VA)
		packet.AddField(l, "rkey %#x", h.RKey)
		if p.Opcode().Operation() == OpCompareSwap {
			packet.AddField(l, "compare %#x", h.Compare)
			packet.AddField(l, "swap %#x", h.SwapAdd)
		} else {
			packet.AddField(l, "add %#x", h.SwapAdd)
		}
	}
	if h := p.AETH; h != nil {
		addSyndrome(l, *h)
		packet.AddField(l, "msn %d", h.MSN)
	}
	if h := p.AtomicAck; h != nil {
		packet.AddField(l, "original %#x", h.Original)
	}
	if h := p.Imm; h != nil {
		packet.AddField(l, "imm %#x", h.Data)
	}
	if h := p.IETH; h != nil {
		packet.AddField(l, "invalidate %#x", h.RKey)
	}
}

// addSyndrome adds the value of a syndrome to l: the credits, the RNR timer or the NAK code. It
// adds nothing if the value is not set, or if an ACK has no credit count.
func addSyndrome(l *packet.Line, h AETH) {
	if h.Value == nil {
		return
	}
	switch value(h.Kind, AckPositive) {
	case AckPositive:
		if n, valid := Credits(*h.Value); valid {
			l.Addf("credits %d", n)
		}
	case AckRNR:
		l.Addf("timer %d (%v)", *h.Value, RNRTimer(*h.Value))
	case AckNegative:
		l.Addf("%v", NakCode(*h.Value))
	default:
		l.Addf("syndrome %#02x", h.Syndrome())
	}
}

// describe formats the syndrome: "NAK remote access".
func (h AETH) describe() string {
	l := packet.Line{"any"}
	if h.Kind != nil {
		l[0] = h.Kind.String()
	}
	addSyndrome(&l, h)
	return l.String()
}

// addBits adds the bits of the BTH that are 1, and its fields that differ from their defaults.
func addBits(l *packet.Line, h BTH) {
	l.AddFlag("SE", h.SE)
	l.AddFlag("MigReq", h.MigReq)
	l.AddFlag("FECN", h.FECN)
	l.AddFlag("BECN", h.BECN)
	l.AddFlag("AckReq", h.AckReq)
	if value(h.PKey, 0xffff) != 0xffff {
		l.Addf("pkey %#04x", *h.PKey)
	}
	if value(h.TVer, 0) != 0 {
		l.Addf("tver %d", *h.TVer)
	}
	if value(h.Resv6, 0) != 0 || value(h.Resv7, 0) != 0 {
		l.Addf("reserved %#02x %#02x", value(h.Resv6, 0), value(h.Resv7, 0))
	}
}
