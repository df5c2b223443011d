package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// burst is the number of packets that a QP may send before the next QP. It is large
// because links merge packets of one flow (GSO).
const burst = 64

// BuildInPlace makes Output place packets as a link.InPlaceLink demands.
func (n *NIC) BuildInPlace() { n.inPlace = true }

// Output fills ds with datagrams to send and returns their number. Payload buffers are reused: each
// must have the capacity of a full packet, or the first must hold all packets one after the other.
// A driver calls Output until it returns less than len(ds) or the link is full. QPs take turns of
// at most burst packets.
func (n *NIC) Output(now mono.Time, ds []link.Datagram) int {
	filled := n.outputMADsAndCNPs(ds)
	for filled < len(ds) {
		q := n.active.pop()
		if q == nil {
			break
		}
		quota := burst
		for quota > 0 && filled < len(ds) && q.emit(now, &ds[filled]) {
			quota--
			if n.gidsChanged && !n.owns(ds[filled].Src.Addr()) {
				continue // source address was removed: drop
			}
			filled++
			n.shareBuffer(ds, filled)
		}
		if quota == 0 || filled == len(ds) {
			n.active.push(q)
		}
		q.checkInvariants()
		q.rearm()
	}
	if n.dead || n.portDown {
		return 0 // the packets of a NIC that is stopped or whose port is down are lost
	}
	for i := range filled {
		n.Count.SentBytes += uint64(len(ds[i].Payload))
	}
	n.Count.Sent += uint64(filled)
	return filled
}

// emit builds the QP's next packet and reports whether there was one: first CNPs, then responses
// unless an ACK is delayed, then requests. But one message may precede an ACK, because an
// application often answers a message at once, and requests alternate with READ responses.
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
	if (q.resp.pending || q.resp.reading) && !q.resp.delay.on {
		if q.nextResponse(now, d) {
			return true
		}
	}
	switch {
	case !hasRequester(q.cfg.Type):
		return false
	case q.cfg.Type == verbs.QPTypeUD:
		return q.sendDatagram(now, d)
	default:
		return q.nextRequest(now, d)
	}
}

// interleaveRequest builds a request every second time while there are READ responses to send, so
// that two peers can READ from each other at the same time. It reports whether it built one.
func (q *QP) interleaveRequest(now mono.Time, d *link.Datagram) bool {
	r := &q.resp
	if !r.reading || r.pending || !hasRequester(q.cfg.Type) {
		return false
	}
	r.requestTurn = !r.requestTurn
	return r.requestTurn && q.nextRequest(now, d)
}

// sendRequestBeforeAck builds a request packet in d although an ACK is pending: up to maxBeforeAck
// packets of one message for each ACK. The message is probably the program's answer to the one that the
// ACK acknowledges, and must not wait for the ACK. After its last packet, delayAck may delay the ACK,
// so that it also acknowledges the peer's next message. It returns false if it has built no packet.
func (q *QP) sendRequestBeforeAck(now mono.Time, d *link.Datagram) bool {
	r := &q.resp
	if !r.pending || !r.answer.ack || r.reading || !hasRequester(q.cfg.Type) {
		return false
	}
	if n := r.sentBeforeAck; n >= maxBeforeAck || n > 0 && q.req.pkt == 0 { // pkt is 0 before the first packet of a message
		return false
	}
	r.sentBeforeAck++
	if !q.nextRequest(now, d) {
		return false
	}
	if isWhole := q.req.pkt == 0; isWhole {
		q.delayAck(now)
	}
	return true
}
