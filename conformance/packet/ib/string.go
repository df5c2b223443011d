package ib

import (
	"fmt"
	"strings"
)

// String formats the packet as a line of a ladder diagram: "SEND_ONLY psn 100 AckReq 64 B",
// "NAK psn 103 sequence msn 5". It shows the set fields, and a wrong ICRC of a parsed packet.
func (p Packet) String() string {
	var l line
	l.add(p.title())
	if p.BTH.PSN != nil && p.Opcode() != OpCNP {
		l.addf("psn %d", *p.BTH.PSN)
	}
	l.headers(p)
	l.bits(p.BTH)
	switch info, known := p.Info(); {
	case p.Body != nil:
		l.addf("%d B behind the BTH", len(p.Body))
	case p.Payload != nil && (!known || info.Payload != PayloadNone && info.Payload != PayloadCNP || len(p.Payload) > 0 && info.Payload == PayloadNone):
		l.addf("%d B", len(p.Payload))
	}
	switch {
	case p.raw == nil:
	case p.ICRC == nil:
		l.add("cut short")
	case p.CheckICRC() != nil:
		l.add("wrong ICRC")
	}
	return strings.Join(l, " ")
}

// title names the packet by its syndrome or message, or else its opcode.
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
	case op == OpUDSendOnly && p.DestQP() == 1:
		if m, msg, err := p.CM(); err == nil {
			return describeCM(m, msg)
		}
	}
	return op.String()
}

type line []string

func (l *line) add(s string)                 { *l = append(*l, s) }
func (l *line) addf(format string, a ...any) { l.add(fmt.Sprintf(format, a...)) }

// number adds a field if it is set.
func number[T any](l *line, format string, p *T) {
	if p != nil {
		l.addf(format, *p)
	}
}

func (l *line) headers(p Packet) {
	if p.Opcode() == OpCNP {
		number(l, "qp %#x", p.BTH.DestQP)
	}
	if h := p.XRCETH; h != nil {
		number(l, "srq %#x", h.SRQ)
	}
	if h := p.DETH; h != nil && !(p.Opcode() == OpUDSendOnly && p.DestQP() == 1) {
		number(l, "qkey %#x", h.QKey)
		number(l, "from %#x", h.SrcQP)
	}
	if h := p.FETH; h != nil {
		number(l, "placement %d", h.Placement)
		number(l, "selectivity %d", h.Selectivity)
	}
	if h := p.RETH; h != nil {
		number(l, "va %#x", h.VA)
		number(l, "rkey %#x", h.RKey)
		number(l, "len %d", h.Len)
	}
	if h := p.AtomicETH; h != nil {
		number(l, "va %#x", h.VA)
		number(l, "rkey %#x", h.RKey)
		if p.Opcode().Operation() == OpCompareSwap {
			number(l, "compare %#x", h.Compare)
			number(l, "swap %#x", h.SwapAdd)
		} else {
			number(l, "add %#x", h.SwapAdd)
		}
	}
	if h := p.AETH; h != nil {
		l.syndrome(*h)
		number(l, "msn %d", h.MSN)
	}
	if h := p.AtomicAck; h != nil {
		number(l, "original %#x", h.Original)
	}
	if h := p.Imm; h != nil {
		number(l, "imm %#x", h.Data)
	}
	if h := p.IETH; h != nil {
		number(l, "invalidate %#x", h.RKey)
	}
}

// syndrome adds the value of a syndrome unless it is the default.
func (l *line) syndrome(h AETH) {
	if h.Value == nil {
		return
	}
	switch value(h.Kind, AckPositive) {
	case AckPositive:
		if n, told := Credits(*h.Value); told {
			l.addf("credits %d", n)
		}
	case AckRNR:
		l.addf("timer %d (%v)", *h.Value, RNRTimer(*h.Value))
	case AckNegative:
		l.add(NakCode(*h.Value).String())
	default:
		l.addf("syndrome %#02x", h.Syndrome())
	}
}

// describe formats the syndrome.
func (h AETH) describe() string {
	l := line{"any"}
	if h.Kind != nil {
		l[0] = h.Kind.String()
	}
	l.syndrome(h)
	return strings.Join(l, " ")
}

// bits adds the set bits of the BTH, and fields without their default value.
func (l *line) bits(h BTH) {
	flags := []struct {
		name string
		set  *bool
	}{{"SE", h.SE}, {"MigReq", h.MigReq}, {"FECN", h.FECN}, {"BECN", h.BECN}, {"AckReq", h.AckReq}}
	for _, f := range flags {
		if value(f.set, false) {
			l.add(f.name)
		}
	}
	if value(h.PKey, 0xffff) != 0xffff {
		l.addf("pkey %#04x", *h.PKey)
	}
	if value(h.TVer, 0) != 0 {
		l.addf("tver %d", *h.TVer)
	}
	if value(h.Resv6, 0) != 0 || value(h.Resv7, 0) != 0 {
		l.addf("reserved %#02x %#02x", value(h.Resv6, 0), value(h.Resv7, 0))
	}
}
