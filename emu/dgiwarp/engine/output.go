package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// turn is how many packets one UD QP may send before the next has its turn.
const turn = 64

// Output fills ds with datagrams that are ready to leave and reports how many.
// Payload buffers are reused: give each the capacity of a full packet, or the
// first that of all, which then lie one behind the other.
func (n *NIC) Output(now mono.Time, ds []link.Datagram) int {
	n.clock = now
	filled := 0
	for filled < len(ds) && n.emitError(&ds[filled]) {
		filled = n.keep(ds, filled)
	}
	filled = n.takeTurns(ds, filled)
	n.feed(now)
	for filled < len(ds) {
		p, ok := n.rd.Output(now, ds[filled].Payload[:0])
		if !ok {
			break
		}
		n.addressRD(&ds[filled], &p)
		filled = n.keep(ds, filled)
	}
	if n.portDown {
		return 0 // as lost as on a cable that is not plugged in
	}
	for i := range filled {
		n.Count.SentBytes += uint64(len(ds[i].Payload))
	}
	n.Count.Sent += uint64(filled)
	return filled
}

// takeTurns fills ds from place filled on with what UD QPs have to send, and has
// RD QPs hand their requests to the peers that they are for.
func (n *NIC) takeTurns(ds []link.Datagram, filled int) int {
	for filled < len(ds) {
		q, ok := n.sending.Pop()
		if !ok {
			break
		}
		q.queued = false
		if q.reliable {
			q.distribute(n.clock)
			continue
		}
		quota := turn
		for quota > 0 && filled < len(ds) && q.emit(&ds[filled]) {
			quota--
			filled = n.keep(ds, filled)
		}
		q.wake()
		if filled == len(ds) {
			break
		}
	}
	return filled
}

// keep adds the packet behind the first so many to them, unless its address is gone:
// then it is lost.
func (n *NIC) keep(ds []link.Datagram, filled int) int {
	if n.moved && !n.owns(ds[filled].Src.Addr()) {
		return filled
	}
	filled++
	n.layBehind(ds, filled)
	return filled
}

// layBehind gives ds[i] the rest of the first one's buffer, if that is for all of
// them. Where it does not reach, ds[i] must find one elsewhere: what it has lies
// somewhere in the first's too, since the last time.
func (n *NIC) layBehind(ds []link.Datagram, i int) {
	longest := maxPacket(n.cfg.LinkMTU, true)
	if i == len(ds) || cap(ds[0].Payload) < 2*longest {
		return
	}
	ds[i].Payload = nil
	if b := ds[i-1].Payload; cap(b)-len(b) >= longest {
		ds[i].Payload = b[len(b):]
	}
}

// emit builds the next packet of a UD QP, if it has one.
func (q *QP) emit(d *link.Datagram) bool {
	for q.sends() {
		if q.pending.Len() == 0 {
			return false
		}
		r := &q.work[*q.pending.First()]
		if r.Op == verbs.OpLocalInv || r.Op == verbs.OpBindMW {
			q.pending.Pop()
			q.doLocally(r)
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
