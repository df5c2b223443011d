package engine

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// handleResponse handles an ACK, NAK, READ response or atomic acknowledgement. It drops a response
// to a PSN that was not sent (a ghost response); by the policy UnsentPSNAcksAll it acknowledges all
// requests. A QP that a local error has stopped (LocalErrorQPOp) ignores responses.
func (q *QP) handleResponse(now mono.Time, p *wire.Packet) {
	switch q.state {
	case verbs.QPStateRTS, verbs.QPStateSQD:
	default:
		q.nic.Count.DropQPState++
		return
	}
	r := &q.req
	if r.stalled && q.nic.policy.LocalErrors == LocalErrorQPOp {
		return
	}
	psn := p.BTH.PSN
	if psn.Sub(r.una) < 0 {
		q.handleStaleResponse(p)
		return
	}
	if psn.Sub(r.max) >= 0 {
		q.nic.Count.GhostResponses++
		if q.nic.policy.UnsentPSNAcksAll && r.outstanding() {
			q.acknowledge(now, r.max.Add(-1), ignoreMissing)
		}
		return
	}
	q.nic.Count.AcksReceived++
	switch p.BTH.Opcode.Operation() {
	case wire.OpAcknowledge:
		q.handleAck(now, p)
	case wire.OpAtomicAcknowledge:
		q.handleAtomicAck(now, p)
	default:
		q.handleReadResponse(now, p)
	}
}

// handleStaleResponse handles a response to a PSN that is already acknowledged. Only a copy of the
// last ACK matters: it may carry new credits. By the policy StaleAckEndsRead, an ACK completes a
// READ that has had responses, and fails the QP.
func (q *QP) handleStaleResponse(p *wire.Packet) {
	q.nic.Count.StaleResponses++
	if p.BTH.Opcode.Operation() != wire.OpAcknowledge {
		return
	}
	if p.BTH.PSN.Next() == q.req.una && p.AETH.Syndrome.Kind() == wire.SyndromeAck {
		q.updateCredits(p.AETH)
		q.wake()
	}
	if !q.nic.policy.StaleAckEndsRead || q.sq.empty() {
		return
	}
	if w := q.sq.at(q.sq.head); w.Op == verbs.OpRDMARead && w.answered > 0 {
		w.state = wqeDone
		q.retire()
		q.fail()
	}
}

// handleAck handles an ACK, RNR NAK or NAK. A NAK acknowledges the PSNs before its own.
func (q *QP) handleAck(now mono.Time, p *wire.Packet) {
	s, psn := p.AETH.Syndrome, p.BTH.PSN
	switch s.Kind() {
	case wire.SyndromeAck:
		q.updateCredits(p.AETH)
		q.handlePositiveAck(now, psn)
	case wire.SyndromeRNR:
		q.nic.Count.RNRNAKsRecvd++
		if q.acknowledge(now, psn.Add(-1), requireResponses) {
			q.handleRNRNAK(now, psn, s.Value())
		}
	case wire.SyndromeNak:
		code := wire.NakCode(s.Value())
		if !q.acknowledge(now, psn.Add(-1), requireResponses) {
			return
		}
		if code == wire.NakPSNSequence {
			q.nic.Count.SeqNAKsRecvd++
			q.retransmitFrom(psn)
		} else {
			q.nic.Count.FatalNAKs++
			q.handleFatalNAK(psn, nakStatus(code))
		}
	default:
		q.failOnReservedSyndrome(now, psn)
	}
}

// handlePositiveAck acknowledges all PSNs up to psn. By the policy AckCompletesReads an ACK also
// completes a READ or atomic whose last PSN is psn.
func (q *QP) handlePositiveAck(now mono.Time, psn wire.PSN) {
	q.req.ackMayCompleteRead = q.nic.policy.AckCompletesReads
	q.acknowledge(now, psn, requireResponses)
	q.req.ackMayCompleteRead = false
}

// handleFatalNAK fails the request that psn, the PSN of a fatal NAK, belongs to. By the policy
// NAKCompletesRead it completes a READ that has had responses, and fails the QP.
func (q *QP) handleFatalNAK(psn wire.PSN, status verbs.WCStatus) {
	w := q.sq.find(psn)
	switch {
	case w == nil:
	case q.nic.policy.NAKCompletesRead && w.Op == verbs.OpRDMARead && psn != w.first:
		q.completeThenFail(psn)
	default:
		q.failRequestAt(psn, status)
	}
}

// failOnReservedSyndrome fails the oldest request after an AETH with a reserved syndrome, which
// acknowledges nothing. By the policy BadResponseCompletes it completes the requests up to psn.
func (q *QP) failOnReservedSyndrome(now mono.Time, psn wire.PSN) {
	q.nic.Count.BadResponses++
	if q.nic.policy.BadResponseCompletes {
		q.acknowledge(now, psn, ignoreMissing)
		q.fail()
		return
	}
	q.failRequest(q.sq.at(q.sq.head), verbs.WCBadRespErr)
}

// nakStatus returns the completion status for a NAK code.
func nakStatus(code wire.NakCode) verbs.WCStatus {
	switch code {
	case wire.NakInvalidRequest:
		return verbs.WCRemInvReqErr
	case wire.NakRemoteAccess:
		return verbs.WCRemAccessErr
	case wire.NakRemoteOperational:
		return verbs.WCRemOpErr
	default: // reserved code
		return verbs.WCBadRespErr
	}
}

const requireResponses, ignoreMissing = false, true // values of force in acknowledge

// acknowledge acknowledges PSNs up to psn and completes requests that end there. Unless force is
// ignoreMissing, it stops at a READ or atomic without response, and retransmits it. It returns
// false then, or if the QP has failed.
func (q *QP) acknowledge(now mono.Time, psn wire.PSN, force bool) bool {
	r := &q.req
	if psn.Sub(r.una) < 0 {
		return true
	}
	wanted := r.sinceUna(psn) + 1 // PSNs from una on
	clean, reached := q.markAcknowledged(psn, wanted, force)
	if reached > 0 {
		r.una = r.una.Add(reached)
		q.noteProgress(now)
	}
	q.retire()
	if !clean && q.state != verbs.QPStateErr {
		q.nic.Count.ImpliedNAKs++
		q.retransmitFrom(r.una)
	}
	return clean && q.state != verbs.QPStateErr
}

// markAcknowledged marks requests as done whose PSNs are all among the wanted PSNs from una to psn.
// It returns how many of these PSNs are acknowledged (reached). clean is false if it stopped at a
// READ-like request without its response. By the policy AckCompletesReads, an ACK of the last PSN
// of such a request stands for the response (ackMayCompleteRead).
func (q *QP) markAcknowledged(psn wire.PSN, wanted int32, force bool) (clean bool, reached int32) {
	r := &q.req
	for i := q.sq.head; i != q.sq.tail && reached < wanted; i++ {
		w := q.sq.at(i)
		if w.state == wqeDone {
			continue
		}
		if w.state != wqeSent {
			break
		}
		if w.readLike() && !force && !(q.req.ackMayCompleteRead && psn == w.last) {
			return false, reached
		}
		end := r.sinceUna(w.last) + 1
		if wanted < end {
			if w.readLike() { // only with force: the ACK stands for the first responses
				w.answered += wanted - reached
			}
			return true, wanted
		}
		reached = end
		w.state = wqeDone
		if w.readLike() && r.reads > 0 {
			r.reads--
		}
	}
	return true, reached
}

// noteProgress restores the retry counters, ends an RNR wait and restarts the transport timer after
// an acknowledgement. It forgets the last NAK; by the policy OneNAKPerWindow only when the packets
// that were sent before that NAK are acknowledged.
func (q *QP) noteProgress(now mono.Time) {
	r := &q.req
	if r.sinceUna(r.next) > halfPSNSpace {
		q.rewind(r.una) // next is before una: packets were acknowledged before they were retransmitted
	}
	q.loadRetries()
	r.nakSeen = r.nakSeen && q.nic.policy.OneNAKPerWindow && r.una.Less(r.nakEnd)
	r.stopTimers()
	q.armTimer(now)
	q.wake()
}

// updateCredits updates the limit sequence number (LSN) from an AETH. The peer
// rounds its credit count down, so a lower limit than before is ignored.
func (q *QP) updateCredits(a wire.AETH) {
	r := &q.req
	n, counted := wire.CreditCount(a.Syndrome.Value())
	if !counted {
		r.limited = false
		return
	}
	if lsn := a.MSN.Add(int32(n)); !r.limited || r.lsn.Less(lsn) {
		r.lsn = lsn
	}
	r.limited = true
}

// failOnBadResponse fails the request of psn, whose response is malformed. By the policy
// BadResponseCompletes the request completes, and then the QP fails.
func (q *QP) failOnBadResponse(psn wire.PSN) {
	q.nic.Count.BadResponses++
	if q.nic.policy.BadResponseCompletes {
		q.completeThenFail(psn)
		return
	}
	q.failRequestAt(psn, verbs.WCBadRespErr)
}

// completeThenFail completes the request of psn and all earlier ones with success, and then fails
// the QP. It imitates devices that complete a READ although its response is malformed or a NAK.
func (q *QP) completeThenFail(psn wire.PSN) {
	last := q.sq.find(psn)
	if last == nil {
		return
	}
	for i := q.sq.head; last.state != wqeDone; i++ {
		q.sq.at(i).state = wqeDone
	}
	q.retire()
	q.fail()
}

// matchResponse returns the request of a READ response or atomic acknowledgement and acknowledges
// all requests before it. It returns nil if the response is out of order. A response of the wrong
// type fails the request.
func (q *QP) matchResponse(now mono.Time, p *wire.Packet) *sendWQE {
	psn := p.BTH.PSN
	w := q.sq.find(psn)
	if w == nil {
		return nil
	}
	if !q.acknowledge(now, w.first.Add(-1), requireResponses) {
		return nil
	}
	if !w.expectsResponse(p.BTH.Opcode.Operation()) {
		q.failOnBadResponse(psn)
		return nil
	}
	if due := w.first.Add(w.answered); psn != due {
		// An earlier response was lost: retransmit without waiting for the timer.
		q.nic.Count.ImpliedNAKs++
		q.retransmitFrom(due)
		return nil
	}
	return w
}

// handleReadResponse places the data of a READ response, or completes the FLUSH or ATOMIC WRITE
// that it answers. An invalid response fails the request.
func (q *QP) handleReadResponse(now mono.Time, p *wire.Packet) {
	w := q.matchResponse(now, p)
	if w == nil {
		return
	}
	op := p.BTH.Opcode.Operation()
	if q.readResponseTooLong(w, p, op) {
		q.failRequestAt(p.BTH.PSN, verbs.WCLocProtErr)
		return
	}
	if !w.inSequence(op) {
		q.failOnBadResponse(p.BTH.PSN)
		return
	}
	if op != wire.OpReadResponseMiddle {
		if p.AETH.Syndrome.Kind() != wire.SyndromeAck {
			q.failOnBadResponse(p.BTH.PSN)
			return
		}
		q.updateCredits(p.AETH)
	}
	if w.Op == verbs.OpRDMARead {
		q.placeReadData(now, p, w)
	} else if len(p.Payload) != 0 {
		q.failOnBadResponse(p.BTH.PSN)
	} else {
		q.countResponse(now, w)
	}
}

// placeReadData writes the payload of a READ response to local memory. Its length must be the path
// MTU, or the remaining length in the last packet. Another length fails the request; by the policy
// ShortResponseStops a shorter one stops the send queue.
func (q *QP) placeReadData(now mono.Time, p *wire.Packet, w *sendWQE) {
	off := uint32(w.answered) * uint32(q.mtu)
	n := min(w.Length-off, uint32(q.mtu))
	switch got := uint32(len(p.Payload)); {
	case got < n && q.nic.policy.ShortResponseStops:
		q.req.stall()
		return
	case got != n:
		q.failOnBadResponse(p.BTH.PSN)
		return
	}
	if err := q.nic.Scatter(w.SGL, q.cfg.PD, off, p.Payload); err != nil {
		q.failRequestAt(p.BTH.PSN, verbs.WCLocProtErr)
		return
	}
	q.countResponse(now, w)
}

// handleAtomicAck writes the original value of an atomic to local memory, in host byte order.
func (q *QP) handleAtomicAck(now mono.Time, p *wire.Packet) {
	w := q.matchResponse(now, p)
	if w == nil {
		return
	}
	if p.AETH.Syndrome.Kind() != wire.SyndromeAck {
		q.failOnBadResponse(p.BTH.PSN)
		return
	}
	q.updateCredits(p.AETH)
	if err := q.nic.Scatter(w.SGL, q.cfg.PD, 0, q.nic.atomics.hostOrder(p.AtomicAckETH.Original)); err != nil {
		q.failRequestAt(p.BTH.PSN, verbs.WCLocProtErr)
		return
	}
	q.countResponse(now, w)
}

// countResponse counts one more response packet of w and completes w after the last. If the QP has
// rewound and not yet sent w again, r.reads does not count w, and is too low until noteProgress
// rewinds once more, which sets it to 0.
func (q *QP) countResponse(now mono.Time, w *sendWQE) {
	r := &q.req
	w.answered++
	r.una = w.first.Add(w.answered)
	if w.answered == w.packets {
		w.state = wqeDone
		r.reads--
	}
	q.noteProgress(now)
	q.retire()
}

// readResponseTooLong reports whether a READ response is longer than the rest of the READ, after
// w.answered packets of the path MTU. Only the policy BadResponseCompletes needs it: a response
// that is too long fails the READ, while other malformed ones complete it. A MIDDLE packet is never
// too long in this sense: where one is valid, more than the path MTU is left.
func (q *QP) readResponseTooLong(w *sendWQE, p *wire.Packet, op wire.Operation) bool {
	if !q.nic.policy.BadResponseCompletes || w.Op != verbs.OpRDMARead || op == wire.OpReadResponseMiddle {
		return false
	}
	return uint32(len(p.Payload)) > w.Length-uint32(w.answered)*uint32(q.mtu)
}
