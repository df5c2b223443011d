package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// handleTimeout handles an expired transport timer. The requester retransmits from the oldest
// unacknowledged PSN, or fails when no retry is left. If it has requested no ACK, it does so now.
func (q *QP) handleTimeout() {
	r := &q.req
	r.stopTimers()
	if !r.outstanding() {
		return
	}
	if q.solicitAck() {
		return
	}
	q.nic.Count.Timeouts++
	if !q.useRetry() {
		return
	}
	r.nakSeen = false
	q.rewind(r.una)
}

// loadRetries restores the retry counters to the attributes of the QP.
func (q *QP) loadRetries() {
	r := &q.req
	r.retries, r.rnrRetries = q.attr.RetryCnt, q.attr.RNRRetry
}

// useRetry uses a retry. By the policy UnlimitedRetries, a retry_cnt of 7 means no limit. If no
// retry is left, an ARMED QP migrates; else the oldest request fails, and useRetry returns false.
func (q *QP) useRetry() bool {
	r := &q.req
	switch {
	case q.attr.RetryCnt == 7 && q.nic.policy.UnlimitedRetries:
	case r.retries > 0:
		r.retries--
	case q.attr.PathMigState == verbs.MigArmed:
		q.migrate()
		r.retries = q.attr.RetryCnt
	default:
		q.nic.Count.RetryExceeded++
		q.failRequest(q.sq.at(q.sq.head), verbs.WCRetryExcErr)
		return false
	}
	return true
}

// rewind makes psn the next PSN to send. It belongs to the oldest request that is not done, or all
// requests that were sent are done.
func (q *QP) rewind(psn wire.PSN) {
	r := &q.req
	r.timer = mono.Never
	r.reads = 0
	r.cur, r.pkt, r.next = q.sq.head, 0, psn
	for r.cur != q.sq.tail && q.sq.at(r.cur).state == wqeDone {
		r.cur++
	}
	if w := q.sq.at(r.cur); r.cur != q.sq.tail && w.state == wqeSent {
		r.pkt = psn.Sub(w.first)
	}
	r.ackRequest = ackRequest{ackReqPSN: psn.Add(-1), ackReqAt: r.cur}
	q.wake()
}

// solicitAck retransmits the last packet, with AckReq, if Config.SparseAckReq has left all unacknowledged
// packets without. It returns whether it does. The responder sends a NAK if earlier packets were lost.
func (q *QP) solicitAck() bool {
	r := &q.req
	if !q.nic.cfg.SparseAckReq || r.next == r.una || r.awaitsAck() || r.soliciting {
		return false
	}
	r.soliciting = true
	if r.pkt == 0 {
		for r.cur--; q.sq.at(r.cur).local(); r.cur-- {
		}
		r.pkt = q.sq.at(r.cur).packets
	}
	r.pkt--
	r.next = r.next.Add(-1)
	q.wake()
	return true
}

// retransmitFrom retransmits from psn, once for each loss. Further NAKs for the same PSN are
// ignored until there is progress; by the policy OneNAKPerWindow all are, until the packets sent so
// far (nakEnd) are acknowledged.
func (q *QP) retransmitFrom(psn wire.PSN) {
	r := &q.req
	switch {
	case r.next == psn: // the requester continues there anyway
		return
	case r.nakSeen && r.nakPSN == psn:
		return
	case r.nakSeen && q.nic.policy.OneNAKPerWindow:
		return
	}
	if !q.useRetry() {
		return
	}
	r.nakSeen, r.nakPSN, r.nakEnd = true, psn, r.max
	q.rewind(psn)
}

// handleRNRNAK rewinds to psn and waits for the RNR timer, or fails the request if no RNR retry is
// left. A duplicate does not change the wait.
func (q *QP) handleRNRNAK(now mono.Time, psn wire.PSN, code uint8) {
	r := &q.req
	w := q.sq.find(psn)
	if r.rnrUntil != mono.Never {
		return
	}
	if q.attr.RNRRetry != 7 {
		if r.rnrRetries == 0 {
			q.nic.Count.RNRExceeded++
			q.failRequest(w, verbs.WCRNRRetryExcErr)
			return
		}
		r.rnrRetries--
	}
	q.rewind(psn) // also stops the transport timer
	r.rnrUntil = now.Add(q.rnrDelay(code))
}

// rnrDelay returns the rounded delay of an RNR timer code. The policy RNRCode25 sets the delay of
// code 25, which differs from the table of IBTA in a device that the policy imitates.
func (q *QP) rnrDelay(code uint8) time.Duration {
	if d := q.nic.policy.RNRCode25; code == 25 && d != 0 {
		return q.roundTimer(d)
	}
	return q.roundTimer(wire.RNRDelay(code))
}

// armTimer starts the transport timer if packets are unacknowledged and it is not running. After a
// rewind the first retransmitted packet starts it: waiting in the send queue uses no retry.
func (q *QP) armTimer(now mono.Time) {
	r := &q.req
	if t := q.ackTimeout(); t > 0 && r.timer == mono.Never && r.next != r.una {
		r.timer = now.Add(t)
	}
}

// localError fails a request because of a local error, as Policy.LocalErrors says. LocalErrorQPOp
// does not apply to a failed bind or invalidation (WCMWBindErr).
func (q *QP) localError(w *sendWQE, status verbs.WCStatus) {
	switch how := q.nic.policy.LocalErrors; {
	case how == LocalErrorFlushes:
		q.fail()
	case how == LocalErrorQPOp && status != verbs.WCMWBindErr:
		q.failAsQPOpError(w)
	default:
		q.failRequest(w, status)
	}
}

// failAsQPOpError implements LocalErrorQPOp. If earlier requests are unacknowledged, the send
// queue stops and nothing completes.
func (q *QP) failAsQPOpError(w *sendWQE) {
	if q.req.outstanding() {
		q.req.stall()
		return
	}
	q.failRequest(w, verbs.WCLocQPOpErr)
	q.fail() // also for UC and UD
}

// failRequest marks a request as failed. It completes after earlier ones; later ones are not sent.
func (q *QP) failRequest(w *sendWQE, status verbs.WCStatus) {
	w.state, w.status = wqeFailed, status
	q.retire()
}

// failRequestAt fails the request that psn belongs to.
func (q *QP) failRequestAt(psn wire.PSN, status verbs.WCStatus) {
	if w := q.sq.find(psn); w != nil {
		q.failRequest(w, status)
	}
}

// retire completes the oldest requests that are done or failed, in order.
func (q *QP) retire() {
	for !q.sq.empty() && q.state != verbs.QPStateErr {
		w := q.sq.at(q.sq.head)
		if w.state == wqeFailed {
			q.completeSend(w, w.status)
			q.sendFailed(w.Op)
			return
		}
		if w.state != wqeDone {
			break
		}
		if q.req.cur == q.sq.head { // a local operation, or a datagram
			q.req.nextWQE()
		}
		q.completeSend(w, verbs.WCSuccess)
	}
	q.checkDrained()
}

// sendFailed handles an error completion: a reliable QP moves to ERR, others to SQE. An operation
// that the QP type does not support moves them to ERR, too, and so does any error of a UC QP with
// the policy UCErrorFatal.
func (q *QP) sendFailed(op verbs.WROpcode) {
	if q.reliable() || !q.supportsOp(op) || q.cfg.Type == verbs.QPTypeUC && q.nic.policy.UCErrorFatal {
		q.fail()
		return
	}
	if q.state == verbs.QPStateRTS || q.state == verbs.QPStateSQD {
		q.state = verbs.QPStateSQE
	}
	q.flushSends()
}

// supportsOp reports whether the QP type supports an operation.
func (q *QP) supportsOp(op verbs.WROpcode) bool {
	switch op {
	case verbs.OpSend, verbs.OpSendImm:
		return true
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpLocalInv, verbs.OpBindMW:
		return q.cfg.Type != verbs.QPTypeUD
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpSendInv, verbs.OpFlush, verbs.OpAtomicWrite:
		return q.cfg.Type == verbs.QPTypeRC || q.cfg.Type == verbs.QPTypeXRCSend
	}
	return false
}

// draining reports whether the QP is in SQD and has unacknowledged requests.
func (q *QP) draining() bool {
	return q.state == verbs.QPStateSQD && (q.req.outstanding() || q.req.pkt > 0)
}

// checkDrained raises SQ_DRAINED when draining has ended.
func (q *QP) checkDrained() {
	if q.state == verbs.QPStateSQD && q.req.drainNotify && !q.draining() {
		q.req.drainNotify = false
		q.nic.Report(nic.Event{Type: verbs.EventSQDrained, QP: q})
	}
}
