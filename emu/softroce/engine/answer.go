package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// nextResponse builds the responder's next packet. Responses are sent in PSN order:
// an ACK or NAK waits for READ and atomic responses with earlier PSNs, which the
// peer would otherwise consider lost.
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
		if !q.buildResponse(now, d, e) {
			return q.nextResponse(now, d)
		}
		if q.limiter.Active() {
			q.limiter.OnSent(now, len(d.Payload), &q.nic.cfg.Congestion)
		}
	case r.pending:
		q.buildAck(d)
	default:
		return false
	}
	return true
}

// buildAck builds the pending ACK or NAK.
func (q *QP) buildAck(d *link.Datagram) {
	r := &q.resp
	r.pending, r.requestSentFirst, r.hold.covers = false, false, 0
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

// creditSyndrome returns an ACK syndrome with the number of posted receives, or
// "unlimited" for an SRQ. Credits count from the MSN, so the receive of an
// unfinished message is included.
func (q *QP) creditSyndrome() wire.Syndrome {
	if q.srq != nil || q.typ == verbs.QPTypeXRCRecv {
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
func (q *QP) buildResponse(now mono.Time, d *link.Datagram, e *replay) bool {
	psn := e.next
	switch e.op {
	case wire.OpReadRequest:
		if !q.buildReadResponse(d, e) {
			return q.readFailed(now, d, e)
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

// buildReadResponse builds one READ response packet from current memory, or from
// the bytes saved when a later request invalidated its key. It reports false if the
// memory is no longer readable.
func (q *QP) buildReadResponse(d *link.Datagram, e *replay) bool {
	off := e.offset(q.mtu)
	n := min(e.end-off, uint32(q.mtu))
	p := q.header(readOperation(e.next == e.from && !e.continued, e.next == e.to), e.next)
	p.AETH = wire.AETH{Syndrome: q.creditSyndrome(), MSN: e.msn}
	return q.readMemory(e, off, writeHeaders(d, &q.path, p, int(n)))
}

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

// readFailed handles a READ whose memory is no longer readable: it sends a fatal
// NAK with the PSN of the missing packet. If it is a repeated response and the key
// was valid when the duplicate arrived, it drops the rest of the response and
// reports false.
func (q *QP) readFailed(_ mono.Time, d *link.Datagram, e *replay) bool {
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
