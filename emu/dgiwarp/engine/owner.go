package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// NextReceive implements iwarp.Owner. It takes the oldest receive of the QP, nil if there is none,
// and copies it, since its slot may be reused. It writes the sender's address to the first GRHLen
// octets, and removes these from the SGL of the copy; Received writes them again with the length of
// the message, which is not known before. It sets MemoryStatus if the receive is too
// short for a GRH or its memory is invalid. If receives are reserved for peers that waited for one,
// the receive counts as one of these.
func (h *peerStream) NextReceive() *iwarp.Receive {
	q := h.peer.qp
	w, pd := q.PeekReceive()
	if w == nil {
		return nil
	}
	q.reservedReceives = max(q.reservedReceives-1, 0)
	r := &h.recv
	r.WRID, r.PD, r.SGL = w.WRID, pd, append(r.SGL[:0], w.SGL...)
	h.first, h.full = h.from, append(h.full[:0], w.SGL...)
	r.MemoryStatus = verbs.WCSuccess
	switch {
	case w.Length < verbs.GRHLen: // too short for the sender's address
		r.MemoryStatus = verbs.WCLocLenErr
	case !h.writeGRH(0):
		r.MemoryStatus = verbs.WCLocProtErr
	}
	if r.MemoryStatus != verbs.WCSuccess {
		r.SGL, r.Length = r.SGL[:0], 0
		q.TakeReceive()
		return r
	}
	r.Length = w.Length - verbs.GRHLen
	for cut := uint32(verbs.GRHLen); cut > 0; {
		e := &r.SGL[0]
		if e.Length > cut {
			e.Addr, e.Length = e.Addr+uint64(cut), e.Length-cut
			break
		}
		cut -= e.Length
		r.SGL = append(r.SGL[:0], r.SGL[1:]...)
	}
	q.TakeReceive()
	return r
}

// writeGRH writes the octets before a message of length octets to its receive. It returns false if
// the memory of the receive is invalid.
func (h *peerStream) writeGRH(length int) bool {
	n := h.peer.qp.nic
	h.first.fillGRH(&n.grh, length)
	return n.Scatter(h.full, h.recv.PD, 0, n.grh[:]) == nil
}

// Received implements iwarp.Owner. It adds the completion of a receive to the CQ. As on a UD QP,
// its length counts the GRH before the message; peer.rd, of the reliable layer, has the peer's QP.
func (h *peerStream) Received(r *iwarp.Receive, wc verbs.WC, solicited bool) {
	q := h.peer.qp
	wc.WRID = r.WRID
	if wc.Status == verbs.WCSuccess && !h.writeGRH(int(wc.ByteLen)) {
		wc.Status = verbs.WCLocProtErr // deregistered after the last segment was placed
	}
	if wc.Status == verbs.WCSuccess {
		wc.ByteLen += verbs.GRHLen
		wc.SrcQP = verbs.QPN(h.peer.rd.Key.RemoteQP)
		wc.Flags |= verbs.WCWithGRH
	}
	q.push(q.RecvCQ, &wc, solicited)
}

// Completed implements iwarp.Owner. It completes the oldest request, since streams complete in
// order, and frees it. After a failed flow, the first flushed request gets the error of the flow.
func (h *peerStream) Completed(_ *iwarp.Request, status verbs.WCStatus) {
	if status == verbs.WCWRFlushErr && h.cause != verbs.WCSuccess {
		status, h.cause = h.cause, verbs.WCSuccess
	}
	h.peer.qp.complete(h.peer.popOldest(), status)
}

// Retired implements iwarp.Owner. It does nothing: Completed frees the slot.
func (h *peerStream) Retired(_ *iwarp.Request) {}

// Ended implements iwarp.Owner. An error in the peer's segments raises an event and, like an error
// of a local request, fails the QP unless the QP is to survive errors of peers (isolate). An error
// that the peer has sent in a Terminate is recorded and raises an event, but does not fail the QP.
func (h *peerStream) Ended(end iwarp.End) {
	p, q := h.peer, h.peer.qp
	p.queueOutput() // there may be an error message to send
	switch end.Cause {
	case iwarp.ByPeer:
		q.nic.Count.ErrorsFound++
		q.nic.Report(nic.Event{Type: iwarp.PeerErrorEvent(end.Error), QP: q})
		if !q.isolate {
			q.fail()
		}
	case iwarp.ByRequest:
		if !q.isolate {
			q.fail()
		}
	case iwarp.ByTerminate:
		q.nic.Count.ErrorsReceived++
		q.reported = ErrorReport{From: p.rd.Key.RemoteAddr, FromQP: p.rd.Key.RemoteQP, Error: end.Error}
		if t, _ := h.stream.Ended(); t != nil && t.HasDDP && !t.DDP.Control.Tagged {
			q.reported.MSN, q.reported.HasMSN = t.DDP.Untagged.MSN, true
		}
		q.nic.Report(nic.Event{Type: verbs.EventQPReqErr, QP: q})
	}
}
