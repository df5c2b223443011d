package ib

import "github.com/fabrictest/fabrictest/conformance/packet"

// Diff returns the fields of got that differ from the expected packet p.
func (p Packet) Diff(got Packet) packet.Differences {
	var d packet.Differences
	p.IP.Diff(&d, got.IP)
	p.UDP.Diff(&d, got.UDP)
	packet.DiffFields(&d, "", p.BTH, got.BTH)
	diffHeader(&d, "RDETH", p.RDETH, got.RDETH)
	diffHeader(&d, "XRCETH", p.XRCETH, got.XRCETH)
	diffHeader(&d, "DETH", p.DETH, got.DETH)
	diffHeader(&d, "FETH", p.FETH, got.FETH)
	diffHeader(&d, "RETH", p.RETH, got.RETH)
	diffHeader(&d, "AtomicETH", p.AtomicETH, got.AtomicETH)
	diffAETH(&d, p.AETH, got.AETH)
	diffHeader(&d, "AtomicAckETH", p.AtomicAck, got.AtomicAck)
	diffHeader(&d, "ImmDt", p.Imm, got.Imm)
	diffHeader(&d, "IETH", p.IETH, got.IETH)
	packet.DiffBytes(&d, "payload", p.Payload, got.Payload)
	packet.DiffBytes(&d, "pad", p.Pad, got.Pad)
	packet.DiffValue(&d, "ICRC", "%#08x", p.ICRC, got.ICRC)
	packet.DiffBytes(&d, "bytes behind the datagram", p.Behind, got.Behind)
	return d
}

// Matches reports whether got matches the expected packet p.
func (p Packet) Matches(got Packet) bool { return len(p.Diff(got)) == 0 }

func diffHeader[T any](d *packet.Differences, name string, want, got *T) {
	packet.DiffHeader(d, name, name+" ", want, got)
}

// diffAETH compares AETHs, with the syndrome as one field.
func diffAETH(d *packet.Differences, want, got *AETH) {
	if want == nil || got == nil {
		diffHeader(d, "AETH", want, got)
		return
	}
	var s packet.Differences
	packet.DiffFields(&s, "", AETH{Kind: want.Kind, Value: want.Value}, got)
	if len(s) > 0 {
		d.Add("syndrome", want.describe(), got.describe())
	}
	packet.DiffValue(d, "MSN", "%d", want.MSN, got.MSN)
}
