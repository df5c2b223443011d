package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// respond schedules an ACK or NAK. It replaces the pending one, except that an ACK
// does not replace the NAK of a later PSN.
func (q *QP) respond(a answer) {
	r := &q.resp
	if r.pending && !r.answer.ack && a.ack && a.psn.Sub(r.answer.psn) < 0 {
		return // an ACK of earlier packets must not replace a NAK
	}
	q.releaseAck()
	r.pending, r.answer, r.delay.eligible = true, a, false
	q.wake()
}

// sendFatalNAK schedules a fatal NAK and fails the QP. If the message has a receive, it completes
// with status. Otherwise the event is raised, unless a failed receive has reported the cause.
func (q *QP) sendFatalNAK(psn wire.PSN, code wire.NakCode, status verbs.WCStatus, event verbs.AsyncEventType) {
	r := &q.resp
	switch {
	case r.recv.active:
		q.completeRecvInError(status)
	case !r.causeReported:
		q.nic.Report(nic.Event{Type: event, QP: q})
	}
	q.nic.Count.FatalNAKsSent++
	q.respond(answer{psn: psn, syndrome: wire.Nak(code)})
	r.fatal = true
	q.fail()
}

// delayAck decides whether to delay the pending ACK by Config.AckDelay, after a request was sent
// ahead of it: if the peer's next message follows soon, one ACK can acknowledge (cover) several.
// All delays of an ACK together must end well before the ACK timeout, and must not withhold credits
// that the peer needs. After a delay in which the peer waited for the ACK, some ACKs (h.skip) are
// not delayed, and the next delays must not exceed the deadline (h.strict).
func (q *QP) delayAck(now mono.Time) {
	h, d := &q.resp.delay, q.nic.cfg.AckDelay
	if !h.eligible || d < 0 { // a negative AckDelay disables delays
		return
	}
	if h.skip > 0 {
		h.skip--
		return
	}
	if !h.anyDelayed {
		h.since = now
	}
	if h.covers >= ackDelayCovers || now.Add(d).Sub(h.since) > ackDelayTotal*d || q.peerShortOfCredits() {
		return
	}
	if t := q.ackTimeout(); t > 0 && t < ackDelayShare*ackDelayTotal*d {
		return
	}
	h.on, h.until, h.strict, h.anyDelayed = true, now.Add(d), h.streak < ackDelayProof, true
	q.nic.holds.add(q, h)
}

// peerShortOfCredits reports whether the peer's next message may use its last credit.
func (q *QP) peerShortOfCredits() bool {
	h := &q.resp.delay
	return h.counted && h.creditLimit.Sub(q.resp.msn) <= 1
}

// noteAdvertisedCredits records the credits in s, the syndrome of the next AETH, and returns s.
func (q *QP) noteAdvertisedCredits(s wire.Syndrome) wire.Syndrome {
	n, counted := wire.CreditCount(s.Value())
	q.resp.delay.creditLimit, q.resp.delay.counted = q.resp.msn.Add(int32(n)), counted
	return s
}

// releaseAck ends a delay. The ACK stays pending until the QP next sends, when a request may again
// be sent ahead of it.
func (q *QP) releaseAck() {
	if q.resp.delay.on {
		q.nic.holds.drop(&q.resp.delay)
		q.resp.delay.on = false
		q.resp.sentBeforeAck = 0
	}
}

// notePeerContinued ends a delay because a message arrived in order: the peer did not wait for the
// delayed ACK. After ackDelayStreak such successes in a row, earlier failures are forgotten: the
// penalty is the initial one again, and the streak still long enough for delays without strict.
func (q *QP) notePeerContinued() {
	h := &q.resp.delay
	if !h.on {
		return
	}
	q.releaseAck()
	q.wake() // the request may not have AckReq set
	if h.streak++; h.streak >= ackDelayStreak {
		h.streak, h.penalty = ackDelayProof, ackDelayProof
	}
}

// delayExpired sends a delayed ACK because its deadline has passed or the peer has retransmitted:
// the peer probably waited for it. So the next ACKs are not delayed (see ackDelay.noteFailure).
func (q *QP) delayExpired() {
	q.releaseAck()
	q.resp.delay.noteFailure()
	q.wake()
}

// ReleaseAcks makes all delayed ACKs ready to send and reports whether there were any. A driver
// calls it before it stops calling Tick, and before a QP is modified or destroyed.
func (n *NIC) ReleaseAcks() bool {
	if n.holds.count == 0 {
		return false
	}
	for _, e := range n.holds.queue[n.holds.head:] {
		if e.delay.on {
			e.q.releaseAck()
			e.q.wake()
		}
	}
	return true
}

// nextResponse builds the responder's next packet; false if there is none to send now. It updates
// r.reading: whether READ-like responses remain. Responses are sent in PSN order: an ACK or NAK
// waits for READ and atomic responses with earlier PSNs, which the peer would otherwise consider
// lost. In ERR, only a fatal NAK is sent. By the policy RepeatsLast, duplicates are answered last.
func (q *QP) nextResponse(now mono.Time, d *link.Datagram) bool {
	r := &q.resp
	if q.state == verbs.QPStateErr && !r.fatal {
		r.dropPending()
		return false
	}
	e := r.replays.due(q.nic.policy.RepeatsLast)
	r.reading = e != nil
	switch {
	case e != nil && (!r.pending || e.first.Sub(r.answer.psn) <= 0):
		if q.rateLimited(now) {
			return false
		}
		if !q.buildResponse(d, e) {
			return q.nextResponse(now, d)
		}
		q.chargeRate(now, d)
	case r.pending:
		q.buildAck(d)
	default:
		return false
	}
	return true
}

// buildAck makes d the pending ACK or NAK, which is then no longer pending.
func (q *QP) buildAck(d *link.Datagram) {
	r := &q.resp
	r.pending, r.sentBeforeAck, r.delay.covers = false, 0, 0
	r.delay.anyDelayed = false
	syndrome := r.answer.syndrome
	if r.answer.ack {
		syndrome = q.noteAdvertisedCredits(q.creditSyndrome())
	}
	p := q.header(wire.OpAcknowledge, r.answer.psn)
	p.AETH = wire.AETH{Syndrome: syndrome, MSN: r.msn}
	writeHeaders(d, &q.path, p, 0)
	q.nic.seal(d, &q.path.icrc)
	q.nic.Count.AcksSent++
}

// creditSyndrome returns an ACK syndrome with the number of posted receives, or "unlimited" for an
// SRQ. Credits count from the MSN, so the receive of an unfinished message is included.
func (q *QP) creditSyndrome() wire.Syndrome {
	if q.cfg.SRQ != nil || q.cfg.Type == verbs.QPTypeXRCRecv {
		return wire.Ack(wire.CreditUnlimited)
	}
	credits := q.rq.Count()
	if q.resp.recv.active {
		credits++
	}
	return wire.Ack(wire.CreditCode(credits))
}

// buildResponse builds the next response packet of a READ, atomic, FLUSH or ATOMIC
// WRITE. It reports false if the response was dropped.
func (q *QP) buildResponse(d *link.Datagram, e *replay) bool {
	psn := e.next
	switch e.op {
	case wire.OpReadRequest:
		if !q.buildReadResponse(d, e) {
			return q.readFailed(d, e)
		}
	case wire.OpCompareSwap, wire.OpFetchAdd:
		p := q.header(wire.OpAtomicAcknowledge, psn)
		p.AETH = wire.AETH{Syndrome: q.creditSyndrome(), MSN: e.msn}
		p.AtomicAckETH = wire.AtomicAckETH{Original: e.original}
		writeHeaders(d, &q.path, p, 0)
	default:
		p := q.header(wire.OpReadResponseOnly, psn)
		p.AETH = wire.AETH{Syndrome: q.creditSyndrome(), MSN: e.msn}
		writeHeaders(d, &q.path, p, 0)
	}
	q.nic.seal(d, &q.path.icrc)
	if e.next == e.to {
		e.finish()
		e.delivered = true
	} else {
		e.next = e.next.Next()
	}
	return true
}

// buildReadResponse builds one READ response packet from current memory, or from the bytes saved
// when a later request invalidated its key. It reports false if the memory is no longer readable.
func (q *QP) buildReadResponse(d *link.Datagram, e *replay) bool {
	off := e.offset(q.mtu)
	n := min(e.end-off, uint32(q.mtu))
	p := q.header(readOperation(e.next == e.from && !e.continued, e.next == e.to), e.next)
	p.AETH = wire.AETH{Syndrome: q.creditSyndrome(), MSN: e.msn}
	return q.readMemory(e, off, writeHeaders(d, &q.path, p, int(n)))
}

// readOperation returns the operation of a READ response packet by its place in the response.
func readOperation(first, last bool) wire.Operation {
	switch {
	case first && last:
		return wire.OpReadResponseOnly
	case first:
		return wire.OpReadResponseFirst
	case last:
		return wire.OpReadResponseLast
	default:
		return wire.OpReadResponseMiddle
	}
}

// readFailed handles a READ whose memory is no longer readable: it sends a fatal NAK with the PSN
// of the missing packet. If it is a repeated response and the key was valid when the duplicate
// arrived, it drops the rest of the response and reports false.
func (q *QP) readFailed(d *link.Datagram, e *replay) bool {
	if e.delivered && !e.refused {
		e.finish()
		return false
	}
	psn := e.next
	q.resp.dropPending()
	q.sendFatalNAK(psn, wire.NakRemoteAccess, verbs.WCRemAccessErr, verbs.EventQPAccessErr)
	q.buildAck(d)
	return true
}
