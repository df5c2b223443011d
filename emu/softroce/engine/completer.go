package engine

import (
	"encoding/binary"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// takeResponse handles an answer to one of our requests.
func (q *QP) takeResponse(now mono.Time, p *wire.Packet) {
	switch q.state {
	case verbs.QPStateRTS, verbs.QPStateSQD:
	default:
		q.nic.Count.DropQPState++
		return
	}
	r := &q.req
	psn := p.BTH.PSN
	if q.nic.q.PSNUnsigned && psn < r.una || !q.nic.q.PSNUnsigned && psn.Sub(r.una) < 0 {
		q.stale(p)
		return
	}
	if psn.Sub(r.max) >= 0 {
		q.nic.Count.GhostResponses++
		if q.nic.q.GhostAckCompletes && r.outstanding() {
			q.acknowledge(now, r.max.Add(-1), true)
		}
		return
	}
	q.nic.Count.AcksReceived++
	switch p.BTH.Opcode.Operation() {
	case wire.OpAcknowledge:
		q.takeAck(now, p)
	case wire.OpAtomicAcknowledge:
		q.takeAtomicAck(now, p)
	default:
		q.takeReadResponse(now, p)
	}
}

// stale is an answer to what was answered before.
func (q *QP) stale(p *wire.Packet) {
	q.nic.Count.StaleResponses++
	if !q.nic.q.StaleAckBreaksRead || p.BTH.Opcode.Operation() != wire.OpAcknowledge || q.sq.empty() {
		return
	}
	if w := q.sq.at(q.sq.head); w.op == verbs.OpRDMARead && w.answered > 0 {
		w.state = wqeDone
		q.retire()
		q.fail()
	}
}

// takeAck handles ACK, RNR NAK and NAK.
func (q *QP) takeAck(now mono.Time, p *wire.Packet) {
	s, psn := p.AETH.Syndrome, p.BTH.PSN
	switch s.Kind() {
	case wire.SyndromeAck:
		q.credit(p.AETH)
		q.acknowledge(now, psn, false)
	case wire.SyndromeRNR:
		q.nic.Count.RNRNAKsRecvd++
		if q.acknowledge(now, psn.Add(-1), false) {
			q.receiverNotReady(now, psn, s.Value())
		}
	case wire.SyndromeNak:
		if !q.acknowledge(now, psn.Add(-1), false) {
			return
		}
		if code := wire.NakCode(s.Value()); code == wire.NakPSNSequence {
			q.nic.Count.SeqNAKsRecvd++
			q.resend(now, psn)
		} else {
			q.nic.Count.FatalNAKs++
			q.refused(psn, nakStatus(code))
		}
	default:
		q.badResponse(psn)
	}
}

// nakStatus maps a NAK to the completion status it causes.
func nakStatus(code wire.NakCode) verbs.WCStatus {
	switch code {
	case wire.NakInvalidRequest:
		return verbs.WCRemInvReqErr
	case wire.NakRemoteAccess:
		return verbs.WCRemAccessErr
	case wire.NakRemoteOperational:
		return verbs.WCRemOpErr
	default: // reserved: at any rate no acknowledgement
		return verbs.WCBadRespErr
	}
}

// acknowledge completes every request up to psn. It stops at one that needs
// more than an ACK: that answer was lost, so it is asked for again, and the
// result is false.
func (q *QP) acknowledge(now mono.Time, psn wire.PSN, force bool) bool {
	r := &q.req
	before := r.una
	clean := true
	for i := q.sq.head; i != q.sq.tail; i++ {
		w := q.sq.at(i)
		if w.state == wqeDone {
			continue
		}
		if w.state != wqeSent || psn.Sub(w.first.Add(w.answered)) < 0 {
			break
		}
		if w.readLike() && !force && !q.nic.q.AckSkipsRead && !(q.nic.q.AckCompletesRead && psn == w.last) {
			clean = false
			break
		}
		if psn.Sub(w.last) < 0 {
			r.una = psn.Next()
			break
		}
		w.state = wqeDone
		r.una = w.last.Next()
		if w.readLike() && r.reads > 0 {
			r.reads--
		}
	}
	if r.next.Sub(r.una) < 0 {
		q.rewind(r.una) // acknowledged while being resent: skip ahead
	}
	if r.una != before {
		q.progress(now)
	}
	q.retire()
	if !clean && q.state != verbs.QPStateErr {
		q.nic.Count.ImpliedNAKs++
		q.resend(now, r.una)
	}
	return clean && q.state != verbs.QPStateErr
}

// progress reloads what lack of progress runs down.
func (q *QP) progress(now mono.Time) {
	r := &q.req
	r.retries, r.rnrRetries = q.attr.RetryCnt, q.attr.RNRRetry
	r.nakSeen = false
	r.timer = mono.Never
	q.armTimer(now)
	q.wake()
}

// credit notes how many more requests the peer has receives for.
func (q *QP) credit(a wire.AETH) {
	n, ok := wire.CreditCount(a.Syndrome.Value())
	if !ok {
		q.req.limited = false
		return
	}
	q.req.limited = true
	q.req.lsn = a.MSN.Add(int32(n))
}

// resend goes back to psn, once for each loss: further NAKs for the same packet
// say nothing new until something has moved.
func (q *QP) resend(now mono.Time, psn wire.PSN) {
	r := &q.req
	switch {
	case r.nakSeen && r.nakPSN == psn && !q.nic.q.DuplicateNAKsResend:
		return
	case r.nakSeen && q.nic.q.IgnoreSecondNAK:
		return
	}
	if !q.spendRetry() {
		return
	}
	r.nakSeen, r.nakPSN = true, psn
	r.timer = mono.Never
	q.armTimer(now)
	q.rewind(psn)
}

// receiverNotReady waits as long as the peer asks for, then goes back to psn.
func (q *QP) receiverNotReady(now mono.Time, psn wire.PSN, code uint8) {
	r := &q.req
	w := q.find(psn)
	if w == nil {
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
	q.rewind(psn)
	r.timer = mono.Never // the peer is alive; the wait is its own doing
	r.rnrUntil = now.Add(q.rnrDelay(code))
	q.rearm()
}

func (q *QP) rnrDelay(code uint8) time.Duration {
	switch {
	case q.nic.q.RNRNoWait:
		return 0
	case q.nic.q.RNRTimerTypo && code == 25:
		return q.jiffies(61410 * time.Microsecond)
	}
	return q.jiffies(wire.RNRDelay(code))
}

// find returns the request that psn belongs to, or nil.
func (q *QP) find(psn wire.PSN) *sendWQE {
	for i := q.sq.head; i != q.sq.tail; i++ {
		w := q.sq.at(i)
		if w.state == wqeSent && psn.Sub(w.first) >= 0 && psn.Sub(w.last) <= 0 {
			return w
		}
	}
	return nil
}

// refused ends the request that psn belongs to with the peer's verdict.
func (q *QP) refused(psn wire.PSN, status verbs.WCStatus) {
	if w := q.find(psn); w != nil {
		w.state, w.status = wqeFailed, status
		q.retire()
	}
}

// badResponse ends a request whose answer makes no sense.
func (q *QP) badResponse(psn wire.PSN) {
	q.nic.Count.BadResponses++
	if q.nic.q.BadRespSucceeds {
		if w := q.find(psn); w != nil {
			w.state = wqeDone
			q.retire()
			q.fail()
		}
		return
	}
	q.refused(psn, verbs.WCBadRespErr)
}

// answerFor finds the request that a READ response or atomic acknowledgement
// belongs to, having acknowledged all before it. It returns nil if the answer
// is not the next one due.
func (q *QP) answerFor(now mono.Time, psn wire.PSN) *sendWQE {
	w := q.find(psn)
	if w == nil {
		return nil
	}
	due := w.first.Add(w.answered)
	if psn.Sub(due) < 0 {
		q.nic.Count.StaleResponses++
		return nil
	}
	if q.nic.q.ReadAckIgnored && q.sq.at(q.sq.head) != w {
		return nil
	}
	if !q.acknowledge(now, w.first.Add(-1), false) {
		return nil
	}
	if psn != due {
		// One before it is missing: no need to wait for the timer.
		q.nic.Count.ImpliedNAKs++
		q.resend(now, due)
		return nil
	}
	return w
}

// takeReadResponse places the data of a READ, or takes the answer of a FLUSH or
// an ATOMIC WRITE.
func (q *QP) takeReadResponse(now mono.Time, p *wire.Packet) {
	psn := p.BTH.PSN
	w := q.answerFor(now, psn)
	if w == nil {
		return
	}
	length := w.length
	switch w.op {
	case verbs.OpRDMARead:
	case verbs.OpFlush, verbs.OpAtomicWrite:
		length = 0
	default:
		q.badResponse(psn)
		return
	}
	off := uint32(w.answered) * uint32(q.mtu)
	n := min(length-off, uint32(q.mtu))
	last := w.answered == w.packets-1
	switch op := p.BTH.Opcode.Operation(); op {
	case wire.OpReadResponseFirst, wire.OpReadResponseMiddle:
		if last {
			q.badResponse(psn)
			return
		}
	default:
		if !last {
			q.badResponse(psn)
			return
		}
	}
	if p.BTH.Opcode.Operation() != wire.OpReadResponseMiddle {
		if p.AETH.Syndrome.Kind() != wire.SyndromeAck {
			q.badResponse(psn)
			return
		}
		q.credit(p.AETH)
	}
	if uint32(len(p.Payload)) != n {
		if q.nic.q.ShortReadHangs && uint32(len(p.Payload)) < n {
			q.req.stalled = true
			q.req.timer = mono.Never
			return
		}
		q.badResponse(psn)
		return
	}
	if n > 0 {
		if err := q.nic.scatter(w.sges, q.pd, off, p.Payload); err != nil {
			q.refused(psn, verbs.WCLocProtErr)
			return
		}
	}
	q.answered(now, w)
}

// takeAtomicAck delivers the original value of an atomic.
func (q *QP) takeAtomicAck(now mono.Time, p *wire.Packet) {
	w := q.answerFor(now, p.BTH.PSN)
	if w == nil {
		return
	}
	if w.op != verbs.OpAtomicCmpAndSwp && w.op != verbs.OpAtomicFetchAdd || p.AETH.Syndrome.Kind() != wire.SyndromeAck {
		q.badResponse(p.BTH.PSN)
		return
	}
	q.credit(p.AETH)
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], p.AtomicAckETH.Original)
	if err := q.nic.scatter(w.sges, q.pd, 0, word[:]); err != nil {
		q.refused(p.BTH.PSN, verbs.WCLocProtErr)
		return
	}
	q.answered(now, w)
}

// answered counts one more response packet of w.
func (q *QP) answered(now mono.Time, w *sendWQE) {
	r := &q.req
	w.answered++
	r.una = w.first.Add(w.answered)
	if w.answered == w.packets {
		w.state = wqeDone
		if r.reads > 0 {
			r.reads--
		}
	}
	if r.next.Sub(r.una) < 0 {
		q.rewind(r.una)
	}
	q.progress(now)
	q.retire()
}
