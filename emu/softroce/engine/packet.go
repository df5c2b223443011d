package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// header returns the NIC's scratch packet with a BTH for this operation and PSN. The caller sets
// the other headers.
func (q *QP) header(op wire.Operation, psn wire.PSN) *wire.Packet {
	p := &q.nic.scratch
	p.BTH = wire.BTH{
		Opcode: wire.MakeOpcode(q.Transport(), op), MigReq: q.attr.PathMigState == verbs.MigMigrated, PKey: q.pkey(),
		DestQP: uint32(q.attr.DestQPN), PSN: psn,
	}
	return p
}

// writeHeaders writes the headers of p to d and returns the space for n bytes of
// payload. The caller fills it and calls seal.
func writeHeaders(d *link.Datagram, pa *path, p *wire.Packet, n int) []byte {
	pad := wire.PadLen(n)
	p.BTH.PadCount = uint8(pad)
	d.Src, d.Dst = pa.src, pa.dst
	d.TClass, d.HopLimit, d.FlowLabel = pa.tclass, pa.hopLimit, pa.flowLabel
	d.IPID, d.Variants = link.IPIDUnknown, link.NoChecksum // the ICRC protects the packet
	b := p.AppendHeaders(d.Payload[:0])
	head := len(b)
	total := head + n + pad + wire.ICRCLen
	if cap(b) < total {
		grown := make([]byte, head, wire.MaxPacketLen)
		copy(grown, b)
		b = grown
	}
	b = b[:total]
	clear(b[head+n:])
	d.Payload = b
	return b[head : head+n]
}

// seal writes the ICRC to the end of d, unless the link does. It assumes IPv4 identification 0,
// which Linux uses for packets with DF from unconnected sockets.
func (n *NIC) seal(d *link.Datagram, icrc *wire.ICRC) {
	if n.cfg.ICRC == ICRCOffloaded {
		return
	}
	icrc.Seal(0, d.Payload)
}

// shareBuffer gives ds[i] the space after ds[i-1] if the buffer of ds[0] is meant for all
// datagrams. If too little is left, ds[i].Payload becomes nil and a new buffer is allocated.
func (n *NIC) shareBuffer(ds []link.Datagram, i int) {
	if i == len(ds) || cap(ds[0].Payload) < 2*wire.MaxPacketLen {
		return
	}
	ds[i].Payload = nil
	b := ds[i-1].Payload
	next := len(b)
	if n.inPlace {
		next = link.PlaceAfter(next)
	}
	if cap(b)-next >= wire.MaxPacketLen {
		ds[i].Payload = b[:next][next:]
	}
}

// rateLimited reports whether congestion control delays the QP's next packet. If
// so, the QP is woken when the packet may be sent.
func (q *QP) rateLimited(now mono.Time) bool {
	if !q.limiter.active || q.limiter.readyAt <= now {
		return false
	}
	q.req.paced = true
	return true
}

// chargeRate counts a packet that is sent now against the rate of congestion control.
func (q *QP) chargeRate(now mono.Time, d *link.Datagram) {
	if q.limiter.active {
		q.limiter.OnSent(now, len(d.Payload), &q.nic.cfg.Congestion)
	}
}

// buildCNP builds a CNP for QP qpn at the destination of pa.
func (n *NIC) buildCNP(d *link.Datagram, pa *path, pkey uint16, qpn uint32) {
	p := &n.scratch
	p.BTH = wire.BTH{Opcode: wire.CNP, PKey: pkey, BECN: true, DestQP: qpn}
	clear(writeHeaders(d, pa, p, wire.CNPPayloadLen))
	d.TClass &^= link.ECN // CNPs are not ECN-capable
	n.seal(d, &pa.icrc)
	n.Count.CNPsSent++
}
