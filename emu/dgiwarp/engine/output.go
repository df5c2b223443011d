package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// packetsPerTurn is the number of packets that a UD QP may send before the next QP.
const packetsPerTurn = 64

// Output fills ds with datagrams to send and returns their number: error messages, then packets of
// UD QPs, then those of the flows of the reliable layer. It reuses the payload buffers: each must
// have the capacity of a full packet, or the first that of all packets together.
func (n *NIC) Output(now mono.Time, ds []link.Datagram) int {
	n.clock = now
	filled := 0
	for filled < len(ds) && n.emitError(&ds[filled]) {
		filled = n.commitDatagram(ds, filled)
	}
	filled = n.outputQPs(ds, filled)
	n.fillFlows(now)
	for filled < len(ds) {
		p, ok := n.rd.Output(now, ds[filled].Payload[:0])
		if !ok {
			break
		}
		n.addressRD(&ds[filled], &p)
		filled = n.commitDatagram(ds, filled)
	}
	if n.PortDown {
		return 0 // the packets are lost
	}
	for i := range filled {
		n.Count.SentBytes += uint64(len(ds[i].Payload))
	}
	n.Count.Sent += uint64(filled)
	return filled
}

// outputQPs fills ds from index filled on with packets of UD QPs, and returns the new number of
// filled datagrams. It moves the requests of RD QPs to the queues of the peers that they are for.
func (n *NIC) outputQPs(ds []link.Datagram, filled int) int {
	for filled < len(ds) {
		q, ok := n.sending.Pop()
		if !ok {
			break
		}
		q.queued = false
		if q.Reliable {
			q.distribute(n.clock)
			continue
		}
		quota := packetsPerTurn
		for quota > 0 && filled < len(ds) && q.emit(&ds[filled]) {
			quota--
			filled = n.commitDatagram(ds, filled)
		}
		q.queueOutput()
		if filled == len(ds) {
			break
		}
	}
	return filled
}

// commitDatagram adds ds[filled] to the output, and returns the new number of filled datagrams. It
// discards a packet whose source address was removed. If ds[0] has a buffer for two packets or
// more, all datagrams share it: the next one gets the rest, or nil if the rest is too short for a
// packet, because the buffer that it had may overlap ds[filled].
func (n *NIC) commitDatagram(ds []link.Datagram, filled int) int {
	if n.gids.changed && !n.gids.owns(ds[filled].Src.Addr()) {
		return filled
	}
	b, longest := ds[filled].Payload, maxDatagramPayload(n.cfg.LinkMTU, ipv4)
	if filled++; filled == len(ds) || cap(ds[0].Payload) < 2*longest {
		return filled
	}
	ds[filled].Payload = nil
	if cap(b)-len(b) >= longest {
		ds[filled].Payload = b[len(b):]
	}
	return filled
}

// emit builds the next packet of a UD QP and reports whether there was one. It executes the local
// requests before it, and fails the QP if the memory of a request is invalid.
func (q *QP) emit(d *link.Datagram) bool {
	for q.maySend() {
		if q.pending.Len() == 0 {
			return false
		}
		r := &q.work[*q.pending.First()]
		if r.Op == verbs.OpLocalInv || r.Op == verbs.OpBindMW {
			q.pending.Pop()
			q.executeLocal(r)
			continue
		}
		if !q.buildDatagram(d, r) {
			q.pending.Pop()
			q.sent = 0
			q.complete(r, verbs.WCLocProtErr)
			q.fail()
			return false
		}
		if q.sent == r.Length {
			q.pending.Pop()
			q.sent = 0
			q.complete(r, verbs.WCSuccess)
		}
		return true
	}
	return false
}
