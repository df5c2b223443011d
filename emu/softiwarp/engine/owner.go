package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// streamOwner is a QP as its stream sees it. The methods are no business of the
// QP's users.
type streamOwner QP

// NextReceive takes a receive off the queue and keeps it until it completes,
// since its place may be posted to again.
func (o *streamOwner) NextReceive() *iwarp.Receive {
	q := (*QP)(o)
	var w *nic.Receive
	if q.srq != nil {
		w = q.srq.Peek()
	} else {
		w = q.rq.Peek()
	}
	if w == nil {
		return nil
	}
	h := &q.current
	h.WRID, h.Length, h.SGL, h.PD = w.WRID, w.Length, append(h.SGL[:0], w.SGL...), q.endpoint.PD
	if q.srq != nil {
		h.PD = q.srq.PD
		q.srq.Take()
	} else {
		q.rq.Take()
	}
	return h
}

// Received completes a receive.
func (o *streamOwner) Received(r *iwarp.Receive, wc verbs.WC, solicited bool) {
	q := (*QP)(o)
	wc.WRID = r.WRID
	if wc.Status != verbs.WCSuccess {
		wc.VendorErr = q.currentVendorErr()
	} else if q.nic.defects.InvalidateUnreported {
		wc.Flags &^= verbs.WCWithInv
		wc.InvalidatedRKey = 0
	}
	q.nic.Count.Recvs++
	q.push(q.recvCQ, &wc, solicited)
}

// Completed reports how a request ended: success only if that was asked for.
func (o *streamOwner) Completed(r *iwarp.Request, status verbs.WCStatus) {
	q := (*QP)(o)
	if r == &q.rtr {
		return
	}
	q.nic.Count.Sends++
	if r.Sent(status) {
		q.nic.Count.Messages++
	}
	if status == verbs.WCSuccess && !r.Signaled() {
		return
	}
	wc := r.Completion(status, verbs.QPN(q.num))
	if status != verbs.WCSuccess {
		wc.VendorErr = q.currentVendorErr()
	}
	q.push(q.sendCQ, &wc, false)
}

// Retired frees the place of a request.
func (o *streamOwner) Retired(r *iwarp.Request) {
	if q := (*QP)(o); r != &q.rtr {
		q.sq.head++
	}
}

// Ended says that the stream has failed.
func (o *streamOwner) Ended(end iwarp.End) {
	q := (*QP)(o)
	q.end, q.vendorErr = end, q.currentVendorErr()
	q.nic.reportEnd(q, end)
	q.conn.streamEnded(end)
	state := verbs.QPStateErr
	if end.Terminate && q.state != verbs.QPStateErr { // whoever has failed it cannot be told to wait
		state = verbs.QPStateSQE
	}
	q.fail(state)
}

// push queues a completion. If there is no room, the QP fails.
func (q *QP) push(cq *nic.CQ, wc *verbs.WC, solicited bool) {
	wc.QPN = verbs.QPN(q.num)
	if !cq.Push(wc, solicited) && q.stream.Live() {
		q.report(verbs.EventQPFatal)
		q.stream.Fail(wire.TermRDMAPLocal, true)
	}
}

// report raises an event about the QP's connection.
func (q *QP) report(e verbs.AsyncEventType) {
	q.nic.Report(nic.Event{Type: e, QP: q})
}

// fail flushes the receives and leaves the QP in a state of error. Its sends the
// stream has flushed.
func (q *QP) fail(state verbs.QPState) {
	q.state = state
	for w := q.rq.Peek(); w != nil; w = q.rq.Peek() {
		q.rq.Take()
		q.nic.Count.Recvs++
		q.push(q.recvCQ, &verbs.WC{WRID: w.WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv, VendorErr: q.vendorErr}, false)
	}
	if q.srq != nil && !q.lastWQEReported {
		q.lastWQEReported = true
		q.report(verbs.EventQPLastWQEReached)
	}
}

// reportEnd raises the event that fits the failure of a QP's stream. What fails
// by a request of its own is told by that request's completion.
func (n *NIC) reportEnd(q *QP, end iwarp.End) {
	switch end.Cause {
	case iwarp.ByPeer:
		q.report(peerErrorEvent(end.Error))
	case iwarp.ByTerminate:
		if !n.defects.TerminateUnreported {
			q.report(verbs.EventQPFatal)
		}
	}
}

// accusation is the event for what a peer did wrong.
func peerErrorEvent(e wire.TermError) verbs.AsyncEventType {
	switch {
	case e.Layer == wire.LayerRDMAP && e.Type == wire.RDMAPRemoteProtection,
		e.Layer == wire.LayerDDP && e.Type == wire.DDPTagged && e != wire.TermTaggedVersion:
		return verbs.EventQPAccessErr
	case e.Type == wire.RDMAPLocal: // of either layer
		return verbs.EventQPFatal
	}
	return verbs.EventQPReqErr
}

// VendorErr of a completion in error tells why the stream ended: the numbers of
// the Terminate that was sent or received, and which of the two it was.
const (
	vendorTerminate uint32 = 1 << 31 // the numbers mean something
	vendorReceived  uint32 = 1 << 30 // they are the peer's
)

// VendorError is the VendorErr that stands for a Terminate.
func VendorError(e wire.TermError, received bool) uint32 {
	v := vendorTerminate | uint32(e.Layer)<<16 | uint32(e.Type)<<8 | uint32(e.Code)
	if received {
		v |= vendorReceived
	}
	return v
}

// TerminateOf reads a VendorErr: which Terminate it stands for, whether it was
// received, and whether it stands for any.
func TerminateOf(vendorErr uint32) (e wire.TermError, received, ok bool) {
	e = wire.TermError{Layer: wire.Layer(vendorErr >> 16 & 0x0F), Type: uint8(vendorErr >> 8 & 0x0F), Code: uint8(vendorErr)}
	return e, vendorErr&vendorReceived != 0, vendorErr&vendorTerminate != 0
}

// detailNow is the VendorErr for what the stream ends with.
func (q *QP) currentVendorErr() uint32 {
	t, received := q.stream.Ended()
	if t == nil || received && q.nic.defects.TerminateUnreported {
		return 0
	}
	return VendorError(t.Error, received)
}

// Terminate returns what the last connection ended with, and whether the peer
// said so; false if it did not end with a Terminate.
func (q *QP) Terminate() (t wire.Terminate, received, ok bool) {
	p, received := q.stream.Ended()
	if p == nil || received && q.nic.defects.TerminateUnreported {
		return t, false, false
	}
	return *p, received, true
}

// End is how the last connection failed; the zero value if it did not.
func (q *QP) End() iwarp.End { return q.end }
