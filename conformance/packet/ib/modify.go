package ib

import (
	"net/netip"
	"slices"
)

// WithOpcode sets the opcode and leaves the headers as they are.
func (p Packet) WithOpcode(op Opcode) Packet { p.BTH.Opcode = &op; return p }

// WithPSN sets the PSN; [AnyPSN] unsets it.
func (p Packet) WithPSN(psn PSN) Packet {
	p.BTH.PSN = &psn
	if psn == AnyPSN {
		p.BTH.PSN = nil
	}
	return p
}

// On changes the transport of the opcode: SendOnly(psn, data).On(UC) has opcode UC SEND_ONLY.
func (p Packet) On(t Transport) Packet { return p.WithOpcode(t.Op(p.Opcode())) }

// OnXRC makes the packet an XRC packet for the shared receive queue with number srq.
func (p Packet) OnXRC(srq uint32) Packet {
	p = p.On(XRC)
	p.XRCETH = &XRCETH{SRQ: &srq}
	return p
}

// To sets the destination QPN.
func (p Packet) To(qpn uint32) Packet { p.BTH.DestQP = &qpn; return p }

// AckReq sets the AckReq bit.
func (p Packet) AckReq() Packet { p.BTH.AckReq = new(true); return p }

// NoAckReq clears the AckReq bit.
func (p Packet) NoAckReq() Packet { p.BTH.AckReq = new(false); return p }

// SE sets the solicited event bit.
func (p Packet) SE() Packet { p.BTH.SE = new(true); return p }

// NoSE clears the solicited event bit.
func (p Packet) NoSE() Packet { p.BTH.SE = new(false); return p }

// MigReq sets the MigReq bit.
func (p Packet) MigReq() Packet { p.BTH.MigReq = new(true); return p }

// WithPKey sets the P_Key.
func (p Packet) WithPKey(pkey uint16) Packet { p.BTH.PKey = &pkey; return p }

// WithTVer sets the transport header version.
func (p Packet) WithTVer(v uint8) Packet { p.BTH.TVer = &v; return p }

// WithReserved sets the reserved bits of the BTH: six after FECN and BECN, seven after AckReq.
func (p Packet) WithReserved(resv6, resv7 uint8) Packet {
	p.BTH.Resv6, p.BTH.Resv7 = &resv6, &resv7
	return p
}

// WithPadCnt sets the PadCnt field only.
func (p Packet) WithPadCnt(n uint8) Packet { p.BTH.PadCnt = &n; return p }

// WithPad sets the pad bytes, and thereby PadCnt unless it is set; an empty slice is no padding.
func (p Packet) WithPad(pad []byte) Packet { p.Pad = pad; return p }

// WithPayload sets the payload.
func (p Packet) WithPayload(b []byte) Packet { p.Payload = b; return p }

// WithRETH sets the RETH.
func (p Packet) WithRETH(h RETH) Packet { p.RETH = &h; return p }

// WithDETH sets Q_Key and source queue pair of a datagram.
func (p Packet) WithDETH(qkey, srcQP uint32) Packet {
	p.DETH = &DETH{QKey: &qkey, SrcQP: &srcQP}
	return p
}

// WithImm sets immediate data.
func (p Packet) WithImm(imm uint32) Packet { p.Imm = &ImmDt{Data: &imm}; return p }

// WithIETH sets the R_Key to invalidate.
func (p Packet) WithIETH(rkey uint32) Packet { p.IETH = &IETH{RKey: &rkey}; return p }

// WithCompare sets the compare field of an atomic.
func (p Packet) WithCompare(v uint64) Packet {
	h := value(p.AtomicETH, AtomicETH{})
	h.Compare = &v
	p.AtomicETH = &h
	return p
}

// WithMSN sets the MSN of an AETH; [AnyMSN] unsets it.
func (p Packet) WithMSN(msn uint32) Packet {
	h := value(p.AETH, AETH{})
	h.MSN = &msn
	if msn == AnyMSN {
		h.MSN = nil
	}
	p.AETH = &h
	return p
}

// WithSyndrome sets all eight bits of the syndrome.
func (p Packet) WithSyndrome(s uint8) Packet {
	h := value(p.AETH, AETH{})
	h.Kind, h.Value = new(AckKind(s>>5)), new(s&31)
	p.AETH = &h
	return p
}

// WithCredits sets the credit code of an acknowledgement.
func (p Packet) WithCredits(code uint8) Packet { return p.WithSyndrome(code & 31) }

// WithBody replaces everything between BTH and ICRC.
func (p Packet) WithBody(b []byte) Packet { p.Body = append([]byte{}, b...); return p }

// From sets the source address.
func (p Packet) From(a netip.Addr) Packet { p.IP.Src = a; return p }

// Via sets source and destination address.
func (p Packet) Via(src, dst netip.Addr) Packet { p.IP.Src, p.IP.Dst = src, dst; return p }

// WithTClass sets DSCP and ECN.
func (p Packet) WithTClass(tc uint8) Packet { p.IP.TClass = &tc; return p }

// CE sets the ECN field to congestion experienced.
func (p Packet) CE() Packet { return p.WithTClass(value(p.IP.TClass, 0) | 3) }

// WithHopLimit sets the hop limit or TTL.
func (p Packet) WithHopLimit(n uint8) Packet { p.IP.HopLimit = &n; return p }

// WithSrcPort sets the UDP source port.
func (p Packet) WithSrcPort(port uint16) Packet { p.UDP.SrcPort = &port; return p }

// WithDstPort sets the UDP destination port.
func (p Packet) WithDstPort(port uint16) Packet { p.UDP.DstPort = &port; return p }

// WithUDPChecksum sends the correct UDP checksum instead of 0.
func (p Packet) WithUDPChecksum() Packet { p.udpChecksum = true; return p }

// WithTrailer sets the bytes after the IP packet, like the padding of a short frame.
func (p Packet) WithTrailer(b []byte) Packet { p.Trailer = b; return p }

// ChooseICRC sends the ICRC that choose returns, given the correct one.
func (p Packet) ChooseICRC(choose func(correct uint32) uint32) Packet {
	p.chooseICRC = choose
	return p
}

// BadICRC flips one bit of the ICRC.
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

// Damaged changes the bytes of the finished IP packet. Nothing is recomputed.
func (p Packet) Damaged(change func(ip []byte)) Packet {
	p.damage = append(slices.Clip(p.damage), change)
	return p
}
