package ib

import (
	"net/netip"
	"slices"
)

// WithOpcode returns a copy with this opcode and the same headers.
func (p Packet) WithOpcode(op Opcode) Packet { p.BTH.Opcode = &op; return p }

// WithPSN returns a copy with this PSN, or with none for [AnyPSN].
func (p Packet) WithPSN(psn PSN) Packet {
	p.BTH.PSN = &psn
	if psn == AnyPSN {
		p.BTH.PSN = nil
	}
	return p
}

// On returns a copy whose opcode is that of another transport: SendOnly(psn, data).On(UC) has
// opcode UC SEND_ONLY.
func (p Packet) On(t Transport) Packet { return p.WithOpcode(t.Op(p.Opcode())) }

// OnXRC returns a copy as an XRC packet for the shared receive queue with number srq.
func (p Packet) OnXRC(srq uint32) Packet {
	p = p.On(XRC)
	p.XRCETH = &XRCETH{SRQ: &srq}
	return p
}

// To returns a copy with this destination QPN.
func (p Packet) To(qpn uint32) Packet { p.BTH.DestQP = &qpn; return p }

// AckReq returns a copy with the AckReq bit set.
func (p Packet) AckReq() Packet { p.BTH.AckReq = new(true); return p }

// NoAckReq returns a copy with the AckReq bit clear.
func (p Packet) NoAckReq() Packet { p.BTH.AckReq = new(false); return p }

// SE returns a copy with the solicited event bit set.
func (p Packet) SE() Packet { p.BTH.SE = new(true); return p }

// NoSE returns a copy with the solicited event bit clear.
func (p Packet) NoSE() Packet { p.BTH.SE = new(false); return p }

// MigReq returns a copy with the MigReq bit set.
func (p Packet) MigReq() Packet { p.BTH.MigReq = new(true); return p }

// WithPKey returns a copy with this P_Key.
func (p Packet) WithPKey(pkey uint16) Packet { p.BTH.PKey = &pkey; return p }

// WithTVer returns a copy with this transport header version.
func (p Packet) WithTVer(v uint8) Packet { p.BTH.TVer = &v; return p }

// WithReserved returns a copy with these reserved bits in the BTH: six after FECN and BECN, seven
// after AckReq.
func (p Packet) WithReserved(resv6, resv7 uint8) Packet {
	p.BTH.Resv6, p.BTH.Resv7 = &resv6, &resv7
	return p
}

// WithPadCnt returns a copy with this value in the PadCnt field, and the same padding.
func (p Packet) WithPadCnt(n uint8) Packet { p.BTH.PadCnt = &n; return p }

// WithPad returns a copy with these pad bytes, and thereby their PadCnt unless that is set; an
// empty slice is no padding.
func (p Packet) WithPad(pad []byte) Packet { p.Pad = pad; return p }

// WithPayload returns a copy with this payload.
func (p Packet) WithPayload(b []byte) Packet { p.Payload = b; return p }

// WithRETH returns a copy with this RETH.
func (p Packet) WithRETH(h RETH) Packet { p.RETH = &h; return p }

// WithDETH returns a copy with the Q_Key and source queue pair of a datagram.
func (p Packet) WithDETH(qkey, srcQP uint32) Packet {
	p.DETH = &DETH{QKey: &qkey, SrcQP: &srcQP}
	return p
}

// WithImm returns a copy with immediate data.
func (p Packet) WithImm(imm uint32) Packet { p.Imm = &ImmDt{Data: &imm}; return p }

// WithIETH returns a copy with the R_Key to invalidate.
func (p Packet) WithIETH(rkey uint32) Packet { p.IETH = &IETH{RKey: &rkey}; return p }

// WithCompare returns a copy with this compare field of an atomic.
func (p Packet) WithCompare(v uint64) Packet {
	h := value(p.AtomicETH, AtomicETH{})
	h.Compare = &v
	p.AtomicETH = &h
	return p
}

// WithMSN returns a copy with this MSN in the AETH, or with none for [AnyMSN].
func (p Packet) WithMSN(msn uint32) Packet {
	h := value(p.AETH, AETH{})
	h.MSN = &msn
	if msn == AnyMSN {
		h.MSN = nil
	}
	p.AETH = &h
	return p
}

// WithSyndrome returns a copy with this syndrome, all eight bits of it, in the AETH.
func (p Packet) WithSyndrome(s uint8) Packet {
	h := value(p.AETH, AETH{})
	h.Kind, h.Value = new(AckKind(s>>5)), new(s&31)
	p.AETH = &h
	return p
}

// WithCredits returns a copy as an acknowledgement with this credit code.
func (p Packet) WithCredits(code uint8) Packet { return p.WithSyndrome(code & 31) }

// WithBody returns a copy with b in place of everything between BTH and ICRC.
func (p Packet) WithBody(b []byte) Packet { p.Body = append([]byte{}, b...); return p }

// From returns a copy with this source address.
func (p Packet) From(a netip.Addr) Packet { p.IP.Src = a; return p }

// Via returns a copy with these source and destination addresses.
func (p Packet) Via(src, dst netip.Addr) Packet { p.IP.Src, p.IP.Dst = src, dst; return p }

// WithTClass returns a copy with this DSCP and ECN.
func (p Packet) WithTClass(tc uint8) Packet { p.IP.TClass = &tc; return p }

// CE returns a copy whose ECN field is congestion experienced.
func (p Packet) CE() Packet { return p.WithTClass(value(p.IP.TClass, 0) | 3) }

// WithHopLimit returns a copy with this hop limit or TTL.
func (p Packet) WithHopLimit(n uint8) Packet { p.IP.HopLimit = &n; return p }

// WithSrcPort returns a copy with this UDP source port.
func (p Packet) WithSrcPort(port uint16) Packet { p.UDP.SrcPort = &port; return p }

// WithDstPort returns a copy with this UDP destination port.
func (p Packet) WithDstPort(port uint16) Packet { p.UDP.DstPort = &port; return p }

// WithUDPChecksum returns a copy that is sent with the correct UDP checksum instead of 0.
func (p Packet) WithUDPChecksum() Packet { p.udpChecksum = true; return p }

// WithTrailer returns a copy with bytes after the IP packet, like the padding of a short frame.
func (p Packet) WithTrailer(b []byte) Packet { p.Trailer = b; return p }

// ChooseICRC returns a copy that is sent with the ICRC that choose returns, given the correct one.
func (p Packet) ChooseICRC(choose func(correct uint32) uint32) Packet {
	p.chooseICRC = choose
	return p
}

// BadICRC returns a copy that is sent with one bit of the ICRC flipped.
func (p Packet) BadICRC() Packet {
	return p.ChooseICRC(func(correct uint32) uint32 { return correct ^ 1 })
}

// InFlight changes the packet after its ICRC was computed, like a router on the path.
// Lengths and checksums are computed for the changed packet:
//
//	ib.SendOnly(psn, data).InFlight(func(p *ib.Packet) { p.IP.ID = new(uint32(7)) })
//
// The function sees the fields that were set, those of [Packet.Or] included.
func (p Packet) InFlight(change func(*Packet)) Packet {
	p.inFlight = append(slices.Clip(p.inFlight), change)
	return p
}

// Damaged returns a copy for which change is called before it is sent, with the bytes of the
// finished IP packet. change may modify them; nothing is recomputed.
func (p Packet) Damaged(change func(ip []byte)) Packet {
	p.damage = append(slices.Clip(p.damage), change)
	return p
}
