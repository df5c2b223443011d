package model

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// UCSender is the model of the packets that a UC queue pair, or an XRC initiator, sends.
type UCSender struct {
	Service ib.Transport // UC or XRC
	Peer    uint32       // QPN of the peer
	MTU     int
	PSN     ib.PSN // of the next packet
	PKey    uint16
}

// UCRequest is a request of a UCSender, with its payload. READs and atomics are of XRC only.
type UCRequest struct {
	WR      verbs.SendWR
	Payload []byte
}

// HasResponse reports whether the request has a response with data.
func (r UCRequest) HasResponse() bool {
	return r.WR.Opcode == verbs.OpRDMARead || r.isAtomic()
}

func (r UCRequest) isAtomic() bool {
	return r.WR.Opcode == verbs.OpAtomicFetchAdd || r.WR.Opcode == verbs.OpAtomicCmpAndSwp
}

// Send returns the packets of a request, and advances the PSN. AckReq may have any value (nil) in
// those of XRC. The payload of a READ stands only for its length.
func (s *UCSender) Send(r UCRequest) (all []ib.Packet) {
	count := ib.Packets(len(r.Payload), s.MTU)
	if r.HasResponse() {
		count = 1
	}
	for i := range count {
		all = append(all, s.packet(r, i, count))
	}
	s.PSN = s.PSN.Add(max(count, ib.Packets(len(r.Payload), s.MTU)))
	return all
}

// packet returns packet i, counted from 0, of the count packets of request r.
func (s *UCSender) packet(r UCRequest, i, count int) ib.Packet {
	op, last := rcMessageOpcodes[r.WR.Opcode][rcPosition(i, count)], i == count-1
	payload := []byte{}
	if !r.HasResponse() {
		payload = slices.Concat(payload, r.Payload[i*s.MTU:min((i+1)*s.MTU, len(r.Payload))])
	}
	p := ib.New(op, s.PSN.Add(i), payload).To(s.Peer).WithPKey(s.PKey)
	info, _ := op.Info()
	if info.Has(ib.HdrRETH) {
		p = p.WithRETH(ib.At(r.WR.Remote.Addr, r.WR.Remote.RKey, len(r.Payload)))
	}
	if info.Has(ib.HdrImmDt) {
		p = p.WithImm(r.WR.Imm)
	}
	if info.Has(ib.HdrIETH) {
		p = p.WithIETH(uint32(r.WR.InvalidateRKey))
	}
	if r.isAtomic() {
		p.AtomicETH = r.atomicETH()
	}
	solicits := last && r.WR.Opcode != verbs.OpRDMAWrite && !r.HasResponse()
	p.BTH.SE = new(solicits && r.WR.Flags&verbs.SendSolicited != 0)
	if s.Service == ib.XRC {
		return p.OnXRC(r.WR.XRC.SRQN)
	}
	return p.NoAckReq().On(s.Service)
}

// atomicETH returns the header of an atomic. The compare field of a FETCH_ADD may have any value
// (nil).
func (r UCRequest) atomicETH() *ib.AtomicETH {
	h := &ib.AtomicETH{VA: &r.WR.Remote.Addr, RKey: new(uint32(r.WR.Remote.RKey)), SwapAdd: &r.WR.Atomic.CompareAdd}
	if r.WR.Opcode == verbs.OpAtomicCmpAndSwp {
		h.SwapAdd, h.Compare = &r.WR.Atomic.Swap, &r.WR.Atomic.CompareAdd
	}
	return h
}
