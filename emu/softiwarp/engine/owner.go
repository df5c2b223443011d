package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// streamOwner implements iwarp.Owner for a QP, without exporting the methods to users of QP.
type streamOwner QP

// NextReceive takes the next receive off the queue; nil if there is none. It returns a copy, since
// the receive's slot may be reused before the receive completes.
func (o *streamOwner) NextReceive() *iwarp.Receive {
	q := (*QP)(o)
	w, pd := q.PeekReceive()
	if w == nil {
		return nil
	}
	current := &q.current
	current.WRID, current.Length, current.SGL, current.PD = w.WRID, w.Length, append(current.SGL[:0], w.SGL...), pd
	q.TakeReceive()
	return current
}

// Received completes a receive.
func (o *streamOwner) Received(r *iwarp.Receive, wc verbs.WC, solicited bool) {
	q := (*QP)(o)
	wc.WRID = r.WRID
	if wc.Status != verbs.WCSuccess {
		wc.VendorErr = q.currentVendorErr()
	}
	q.nic.Count.Recvs++
	q.push(q.RecvCQ, &wc, solicited)
}

// Completed counts a request and adds its completion to the send CQ, for a success only if the
// request is signaled.
func (o *streamOwner) Completed(r *iwarp.Request, status verbs.WCStatus) {
	q := (*QP)(o)
	if r == &q.rtr { // posted by connection setup, not by the application
		return
	}
	q.nic.Count.Sends++ // requests of all opcodes
	if r.IsSuccessfulSend(status) {
		q.nic.Count.Messages++
	}
	if status == verbs.WCSuccess && !r.Signaled() {
		return
	}
	wc := r.Completion(status, verbs.QPN(q.QPN))
	if status != verbs.WCSuccess {
		wc.VendorErr = q.currentVendorErr()
	}
	q.push(q.SendCQ, &wc, notSolicited)
}

// Retired frees the send queue slot of a request. q.rtr, the ready-to-receive message, has none.
func (o *streamOwner) Retired(r *iwarp.Request) {
	if q := (*QP)(o); r != &q.rtr {
		q.sq.head++
	}
}

// Ended handles the end of the stream, and raises the asynchronous event for it, unless the policy
// HideTerminate hides a Terminate of the peer. If this end is to send a Terminate, it moves the QP
// to SQE, which stands for iWARP's Terminate state, else to ERR.
func (o *streamOwner) Ended(end iwarp.End) {
	q := (*QP)(o)
	q.end, q.vendorErr = end, q.currentVendorErr()
	switch end.Cause { // a failed local request raises no event: its completion reports the error
	case iwarp.ByPeer:
		q.report(iwarp.PeerErrorEvent(end.Error))
	case iwarp.ByTerminate:
		if !q.nic.policy.HideTerminate {
			q.report(verbs.EventQPFatal)
		}
	}
	q.conn.streamEnded(end)
	state := verbs.QPStateErr
	if end.Terminate && q.state != verbs.QPStateErr { // a QP in ERR stays there
		state = verbs.QPStateSQE
	}
	q.fail(state)
}

// notSolicited is the argument of push for completions of messages without a solicited event.
const notSolicited = false

// sendTerminate is the argument of Stream.Fail that tells the peer by a Terminate.
const sendTerminate = true

// push adds a completion to cq. If cq is full and the stream has not ended, push raises
// EventQPFatal and ends the stream with a Terminate, which fails the QP.
func (q *QP) push(cq *nic.CQ, wc *verbs.WC, solicited bool) {
	wc.QPN = verbs.QPN(q.QPN)
	if !cq.Push(wc, solicited) && q.stream.Live() {
		q.report(verbs.EventQPFatal)
		q.stream.Fail(wire.TermRDMAPLocal, sendTerminate)
	}
}

// report raises an event about the QP's connection.
func (q *QP) report(e verbs.AsyncEventType) {
	q.nic.Report(nic.Event{Type: e, QP: q})
}

// fail enters an error state and flushes the receives; with an SRQ, it raises
// verbs.EventQPLastWQEReached once. The stream flushes the sends.
func (q *QP) fail(state verbs.QPState) {
	q.state = state
	for w := q.RQ.Peek(); w != nil; w = q.RQ.Peek() {
		q.RQ.Take()
		q.nic.Count.Recvs++
		q.push(q.RecvCQ, &verbs.WC{WRID: w.WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv, VendorErr: q.vendorErr}, notSolicited)
	}
	if q.SRQ != nil && !q.lastWQEReported {
		q.lastWQEReported = true
		q.report(verbs.EventQPLastWQEReached)
	}
}

// VendorErr of a completion in error encodes the Terminate that ended the stream:
// layer, type, code, and whether it was sent or received.
const (
	vendorTerminate uint32 = 1 << 31 // there was a Terminate
	vendorReceived  uint32 = 1 << 30 // the peer sent it
)

// VendorError encodes a Terminate, and whether the peer sent it, as the VendorErr of completions.
func VendorError(e wire.TermError, received bool) uint32 {
	v := vendorTerminate | uint32(e.Layer)<<16 | uint32(e.Type)<<8 | uint32(e.Code)
	if received {
		v |= vendorReceived
	}
	return v
}

// currentVendorErr returns the VendorErr for the Terminate of the stream, or 0 if there is none.
// The policy HideTerminate hides a received one.
func (q *QP) currentVendorErr() uint32 {
	t, received := q.stream.Ended()
	if t == nil || received && q.nic.policy.HideTerminate {
		return 0
	}
	return VendorError(t.Error, received)
}

// End describes why the last connection failed; the zero value if it did not.
func (q *QP) End() iwarp.End { return q.end }
