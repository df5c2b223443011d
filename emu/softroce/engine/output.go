package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// turn is how many packets one QP may send before the next has its turn. A
// link joins packets of one flow into larger units, so it is not small.
const turn = 64

// Output fills ds with datagrams that are ready to leave and reports how many.
// Payload buffers are reused: give each the capacity of a full packet, or the
// first that of all, which then lie one behind the other. A driver calls Output
// as long as it fills ds, but may stop earlier when its link is full.
func (n *NIC) Output(now mono.Time, ds []link.Datagram) int {
	filled := n.outputMADs(ds)
	for filled < len(ds) {
		q := n.active.pop()
		if q == nil {
			break
		}
		quota := turn
		for quota > 0 && filled < len(ds) && q.emit(now, &ds[filled]) {
			quota--
			if n.gidsChanged && !n.owns(ds[filled].Src.Addr()) {
				continue // its address is gone: lost
			}
			filled++
			shareBuffer(ds, filled)
		}
		if quota == 0 || filled == len(ds) {
			n.active.push(q)
		}
		q.checkInvariants()
		q.rearm()
	}
	if n.dead || n.portDown {
		return 0 // as lost as on a cable that is not plugged in
	}
	for i := range filled {
		n.Count.SentBytes += uint64(len(ds[i].Payload))
	}
	n.Count.Sent += uint64(filled)
	return filled
}

// layBehind gives ds[i] the rest of the first one's buffer, if that is for all of
// them. Where it does not reach, ds[i] must find one elsewhere: what it has lies
// somewhere in the first's too, since the last time.
func shareBuffer(ds []link.Datagram, i int) {
	if i == len(ds) || cap(ds[0].Payload) < 2*wire.MaxPacketLen {
		return
	}
	ds[i].Payload = nil
	if b := ds[i-1].Payload; cap(b)-len(b) >= wire.MaxPacketLen {
		ds[i].Payload = b[len(b):]
	}
}

// emit builds the QP's next packet, if it has one: congestion news before
// answers, answers before requests. But one request may overtake an ACK: where a
// message answers a message, the other side waits for the message.
func (q *QP) emit(now mono.Time, d *link.Datagram) bool {
	if q.cnpDue {
		q.cnpDue = false
		q.nic.buildCNP(d, &q.path, q.cnpPKey, uint32(q.attr.DestQPN))
		return true
	}
	if q.sendRequestBeforeAck(now, d) {
		return true
	}
	if q.interleaveRequest(now, d) {
		return true
	}
	if (q.resp.pending || q.resp.reading) && !q.resp.hold.on {
		if q.nextResponse(now, d) {
			return true
		}
	}
	switch {
	case !sends(q.typ):
		return false
	case q.typ == verbs.QPTypeUD:
		return q.sendDatagram(now, d)
	default:
		return q.nextRequest(now, d)
	}
}

// interleaveRequest lets a request leave between the packets of a long answer: a READ of the
// peer's must not keep ours from beginning, or two who read from each other would do so
// one after the other.
func (q *QP) interleaveRequest(now mono.Time, d *link.Datagram) bool {
	r := &q.resp
	if !r.reading || r.pending || !sends(q.typ) {
		return false
	}
	r.requestTurn = !r.requestTurn
	return r.requestTurn && q.nextRequest(now, d)
}

// sendRequestBeforeAck lets one request leave ahead of a pending ACK.
func (q *QP) sendRequestBeforeAck(now mono.Time, d *link.Datagram) bool {
	r := &q.resp
	if !r.pending || !r.answer.ack || r.requestSentFirst || r.reading || !sends(q.typ) {
		return false
	}
	r.requestSentFirst = true
	if !q.nextRequest(now, d) {
		return false
	}
	q.holdAck(now)
	return true
}

// header fills in what all packets of the QP have in common.
func (q *QP) header(op wire.Operation, psn wire.PSN) *wire.Packet {
	p := &q.nic.scratch
	p.BTH = wire.BTH{
		Opcode: wire.MakeOpcode(q.transport(), op), MigReq: q.migReq(), PKey: q.pkey,
		DestQP: uint32(q.attr.DestQPN), PSN: psn,
	}
	return p
}

// begin writes the headers of p into d and returns the space for n bytes of
// payload behind them. The caller fills it and calls seal.
func writeHeaders(d *link.Datagram, pa *path, p *wire.Packet, n int) []byte {
	pad := wire.PadLen(n)
	p.BTH.PadCount = uint8(pad)
	d.Src, d.Dst = pa.src, pa.dst
	d.TClass, d.HopLimit, d.FlowLabel = pa.tclass, pa.hopLimit, pa.flowLabel
	d.IPID, d.Variants = link.IPIDUnknown, link.NoChecksum // the ICRC does for it
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

// seal completes d with its ICRC. Over IPv4 it counts on identification 0: what
// an unconnected socket sends with fragmentation forbidden.
func (n *NIC) seal(d *link.Datagram, icrc *wire.ICRC) {
	if n.cfg.ICRC == ICRCOffloaded {
		return
	}
	icrc.Seal(0, d.Payload)
}
