package engine

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// What requesters make of answers that they misunderstand.

// handlePositiveAck completes what an ACK covers: all up to its PSN, on a sound NIC.
func (q *QP) handlePositiveAck(now mono.Time, psn wire.PSN) {
	q.req.plainAck = q.nic.defects.AckCompletesRead
	q.acknowledge(now, psn, false)
	q.req.plainAck = false
}

// readResponseTooLong reports whether an answer to a READ brings more than is left of it, which
// ends even what Defects.BadRespSucceeds believes: there is no memory to place it in.
func (q *QP) readResponseTooLong(w *sendWQE, p *wire.Packet, op wire.Operation) bool {
	if !q.nic.defects.BadRespSucceeds || w.Op != verbs.OpRDMARead || op == wire.OpReadResponseMiddle {
		return false
	}
	return uint32(len(p.Payload)) > w.Length-uint32(w.answered)*uint32(q.mtu)
}

// handleFatalNAK ends the request that a fatal NAK is for, and on a sound NIC the QP.
func (q *QP) handleFatalNAK(psn wire.PSN, status verbs.WCStatus) {
	w := q.findRequest(psn)
	switch {
	case w == nil:
	case q.nic.defects.NAKInReadSucceeds && w.Op == verbs.OpRDMARead && psn != w.first:
		q.completeThenFail(psn)
	default:
		q.failRequestAt(psn, status)
	}
}
