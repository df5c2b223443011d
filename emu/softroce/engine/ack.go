package engine

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// handlePositiveAck acknowledges all PSNs up to psn.
func (q *QP) handlePositiveAck(now mono.Time, psn wire.PSN) {
	q.req.plainAck = q.nic.policy.AckCompletesReads
	q.acknowledge(now, psn, false)
	q.req.plainAck = false
}

// readResponseTooLong reports whether a READ response is longer than the rest of
// the READ. It fails the READ even if the policy completes one with a bad response.
func (q *QP) readResponseTooLong(w *sendWQE, p *wire.Packet, op wire.Operation) bool {
	if !q.nic.policy.BadResponseCompletes || w.Op != verbs.OpRDMARead || op == wire.OpReadResponseMiddle {
		return false
	}
	return uint32(len(p.Payload)) > w.Length-uint32(w.answered)*uint32(q.mtu)
}

// handleFatalNAK fails the request that a fatal NAK names.
func (q *QP) handleFatalNAK(psn wire.PSN, status verbs.WCStatus) {
	w := q.findRequest(psn)
	switch {
	case w == nil:
	case q.nic.policy.NAKCompletesRead && w.Op == verbs.OpRDMARead && psn != w.first:
		q.completeThenFail(psn)
	default:
		q.failRequestAt(psn, status)
	}
}
