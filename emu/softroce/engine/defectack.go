package engine

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// What requesters make of answers that they misunderstand.

// takePlainAck completes what an ACK covers: all up to its PSN, on a sound NIC.
func (q *QP) takePlainAck(now mono.Time, psn wire.PSN) {
	q.req.plainAck = q.nic.q.AckCompletesRead
	q.acknowledge(now, psn, false)
	q.req.plainAck = false
}

// exceeds reports whether an answer to a READ brings more than is left of it, which
// ends even what Defects.BadRespSucceeds believes: there is no memory to place it in.
func (q *QP) exceeds(w *sendWQE, p *wire.Packet, op wire.Operation) bool {
	if !q.nic.q.BadRespSucceeds || w.Op != verbs.OpRDMARead || op == wire.OpReadResponseMiddle {
		return false
	}
	return uint32(len(p.Payload)) > w.Length-uint32(w.answered)*uint32(q.mtu)
}

// takeRefusal ends the request that a fatal NAK is for, and on a sound NIC the QP.
func (q *QP) takeRefusal(psn wire.PSN, status verbs.WCStatus) {
	w := q.find(psn)
	switch {
	case w == nil:
	case q.nic.q.NAKInReadSucceeds && w.Op == verbs.OpRDMARead && psn != w.first:
		q.believe(psn)
	default:
		q.refused(psn, status)
	}
}
