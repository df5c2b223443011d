package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// handleRequest handles a request packet of a reliable QP: it executes the expected PSN, responds
// again to an earlier one, and NAKs a later one. known is false for undefined opcodes.
func (q *QP) handleRequest(p *wire.Packet, known bool) {
	r := &q.resp
	q.reportCommEst()
	ahead := p.BTH.PSN.Sub(r.expected)
	switch {
	case ahead > 0:
		q.handleOutOfSequence()
		return
	case ahead < 0 && !known:
		q.nic.Count.DropOpcode++
		return
	case ahead < 0:
		q.handleDuplicate(p)
		return
	}
	r.seqNAKed = false
	v := refusedInvalid
	if known {
		v = q.execute(p)
	}
	q.respondToRequest(p, v)
}

// reportCommEst raises COMM_EST for the first packet of a QP in RTR.
func (q *QP) reportCommEst() {
	if q.state == verbs.QPStateRTR && !q.resp.established {
		q.resp.established = true
		q.nic.Report(nic.Event{Type: verbs.EventCommEst, QP: q})
	}
}

// handleOutOfSequence sends one sequence NAK for a gap. After an RNR NAK it sends none, because
// the peer will retransmit, unless the policy SeqNAKAfterRNR is set.
func (q *QP) handleOutOfSequence() {
	r := &q.resp
	q.nic.Count.OutOfSequence++
	if r.seqNAKed || r.rnrNAKed && !q.nic.policy.SeqNAKAfterRNR {
		return
	}
	r.seqNAKed = true
	q.nic.Count.SeqNAKsSent++
	q.respond(answer{psn: r.expected, syndrome: wire.Nak(wire.NakPSNSequence)})
}

// respondToRequest schedules the response to a request with the expected PSN: an ACK if the request
// has AckReq, or a NAK. After silentlyFailed it sends nothing.
func (q *QP) respondToRequest(p *wire.Packet, v verdict) {
	r := &q.resp
	psn := p.BTH.PSN
	switch v {
	case accepted:
		r.rnrNAKed = false
		if r.pending && !r.answer.ack {
			// The missing packet has arrived before the NAK was sent. Send an ACK instead.
			r.answer = answer{psn: r.ackPSN, ack: true}
		}
		c := p.BTH.Opcode.Class()
		hasResponse := c&(wire.Read|wire.Atomic|wire.Flush|wire.AtomicWrite) != 0 // which acknowledges it
		if !hasResponse {
			r.delay.covers++
		}
		if c.Has(wire.End) || r.delay.covers >= ackDelayCovers {
			q.notePeerContinued()
		}
		if p.BTH.AckReq && !hasResponse {
			q.respond(answer{psn: r.ackPSN, ack: true})
			r.delay.eligible = c.Has(wire.End) // the application may answer the message at once
		}
	case notReady:
		r.rnrNAKed = true
		q.nic.Count.RNRNAKsSent++
		q.respond(answer{psn: psn, syndrome: wire.RNRNak(q.attr.MinRNRTimer)})
	case refusedInvalid:
		q.sendFatalNAK(psn, wire.NakInvalidRequest, verbs.WCRemInvReqErr, verbs.EventQPReqErr)
	case refusedAccess:
		q.sendFatalNAK(psn, wire.NakRemoteAccess, verbs.WCRemAccessErr, verbs.EventQPAccessErr)
	case refusedOperational:
		q.sendFatalNAK(psn, wire.NakRemoteOperational, verbs.WCLocQPOpErr, verbs.EventQPFatal)
	}
}

// execute executes the request packet with the expected PSN, or returns why it is refused. It checks the
// order of first, middle and last packets, the length and the number of the SRQ; the functions of the
// operations check the rest.
func (q *QP) execute(p *wire.Packet) verdict {
	c := p.BTH.Opcode.Class()
	if !q.inSequence(c) || !q.lengthOK(c, p) {
		return refusedInvalid
	}
	if q.cfg.Type == verbs.QPTypeXRCRecv && !q.selectSRQ(p.XRCETH.SRQN) {
		return refusedInvalid
	}
	switch {
	case c.Has(wire.Send):
		return q.executeSend(p, c)
	case c.Has(wire.Write):
		return q.executeWrite(p, c)
	default:
		return q.executeRead(p, c)
	}
}

// inSequence reports whether an opcode may follow in the unfinished message, or begin a new one if
// there is none.
func (q *QP) inSequence(c wire.Class) bool {
	switch q.resp.open {
	case messageSend:
		return c.Has(wire.Send) && !c.Has(wire.Start)
	case messageWrite:
		return c.Has(wire.Write) && !c.Has(wire.Start)
	default:
		return c.Has(wire.Start)
	}
}

// lengthOK reports whether the length of a payload is valid for its position in the message. With
// the policy AnySendLength, any length is valid in a SEND.
func (q *QP) lengthOK(c wire.Class, p *wire.Packet) bool {
	n := int32(len(p.Payload))
	if q.nic.policy.AnySendLength && c.Has(wire.Send) {
		return true
	}
	switch {
	case !c.Has(wire.HasPayload):
		return n == 0
	case c.Has(wire.First), c.Has(wire.Middle):
		return n == q.mtu
	case c.Has(wire.Last):
		return n >= 1 && n <= q.mtu
	default:
		return n <= q.mtu
	}
}

// executeSend executes one packet of a SEND. It is not ready without a receive, or while a SEND
// with Invalidate would have to save too much data of unsent READ responses (canSave).
func (q *QP) executeSend(p *wire.Packet, c wire.Class) verdict {
	r := &q.resp
	info, _ := p.BTH.Opcode.Info()
	if info.Headers.Has(wire.HasIETH) && !q.canSave(p.IETH.RKey) || c.Has(wire.Start) && !q.claimReceive() {
		return notReady
	}
	if v := q.placeSend(p.Payload); v != accepted {
		return v
	}
	r.advance()
	r.open = messageSend
	if !c.Has(wire.End) {
		return accepted
	}
	r.open = messageNone
	wc := verbs.WC{WRID: r.recv.wrID, Opcode: verbs.WCOpRecv, ByteLen: r.recv.filled, SrcQP: q.attr.DestQPN}
	switch {
	case info.Headers.Has(wire.HasImm):
		wc.Flags, wc.Imm = verbs.WCWithImm, uint32(p.Imm)
	case info.Headers.Has(wire.HasIETH):
		if v := q.remoteInvalidate(p.IETH.RKey); v != accepted {
			return v
		}
		wc.Flags, wc.InvalidatedRKey = verbs.WCWithInv, verbs.RKey(p.IETH.RKey)
	}
	r.recv.active = false
	return q.deliver(p, &wc)
}

// placeSend copies the payload of a SEND into the claimed receive. If that is too short, it
// completes in error; but UC without an SRQ only drops the message. By the policy
// LongSendOperational, the error is an operational one, and not an invalid request.
func (q *QP) placeSend(payload []byte) verdict {
	h := &q.resp.recv
	if uint64(h.filled)+uint64(len(payload)) > uint64(h.length) {
		if !q.reliable() && q.cfg.SRQ == nil {
			return refusedInvalid // message dropped; the next message reuses the receive
		}
		if q.nic.policy.LongSendOperational {
			q.failReceive(verbs.WCLocQPOpErr)
			return refusedOperational
		}
		q.failReceive(verbs.WCLocLenErr)
		return refusedInvalid
	}
	if err := q.nic.Scatter(h.sges, h.pd, h.filled, payload); err != nil {
		q.failReceive(verbs.WCLocProtErr)
		return refusedOperational
	}
	h.filled += uint32(len(payload))
	return accepted
}

// failReceive completes the claimed receive with status. The sendFatalNAK that follows then reports
// neither a second completion nor an event.
func (q *QP) failReceive(status verbs.WCStatus) {
	q.completeRecvInError(status)
	q.resp.causeReported = true
}

// deliver completes a receive. If the CQ is full, the QP fails and sends neither an ACK nor a NAK.
func (q *QP) deliver(p *wire.Packet, wc *verbs.WC) verdict {
	q.resp.solicited = p.BTH.Solicited
	if !q.pushRecv(wc) {
		return silentlyFailed
	}
	q.resp.countMessage()
	return accepted
}

// remoteInvalidate executes the invalidation of a SEND with invalidate. Before, saveReads copies
// the memory that unsent READ responses need. A failure completes the receive in error and fails
// the QP without a NAK. By the policy UnboundInvalidateFatal it stops the NIC instead; by
// AckFailedInvalidate the SEND is acknowledged before the QP fails.
func (q *QP) remoteInvalidate(rkey uint32) verdict {
	err := q.nic.Mem.CheckInvalidate(rkey, q.accessPD(), q.num)
	if err == nil {
		q.saveReads(rkey)
		err = q.nic.Mem.Invalidate(rkey, q.accessPD(), q.num)
	}
	if err == nil {
		return accepted
	}
	if q.nic.policy.UnboundInvalidateFatal && q.nic.Mem.Unbound(rkey) {
		q.nic.dead = true
		q.nic.Report(nic.Event{Type: verbs.EventDeviceFatal})
		return silentlyFailed
	}
	q.completeRecvInError(verbs.WCMWBindErr)
	if q.nic.policy.AckFailedInvalidate {
		q.respond(answer{psn: q.resp.ackPSN, ack: true})
		q.resp.fatal = true // send this ACK although the QP is in ERR
	}
	q.fail()
	return silentlyFailed
}

// executeWrite executes one packet of an RDMA WRITE. By the policy ClaimBeforeAccessCheck, a WRITE
// with immediate that fails the access check uses a receive.
func (q *QP) executeWrite(p *wire.Packet, c wire.Class) verdict {
	r := &q.resp
	payload := p.Payload
	n := uint32(len(payload))
	va, rkey, remaining := r.write.va, r.write.rkey, r.write.remaining
	if c.Has(wire.Start) {
		va, rkey, remaining = p.RETH.VA, p.RETH.RKey, p.RETH.DMALen
		if v := q.admitWrite(p); v != accepted {
			return v
		}
	}
	if c.Has(wire.End) && n != remaining || !c.Has(wire.End) && n >= remaining {
		return refusedInvalid
	}
	imm := c.Has(wire.CompletesRecv)
	mem, at, err := q.remoteMemory(rkey, va, uint64(n), verbs.AccessRemoteWrite)
	if err != nil {
		if imm && q.nic.policy.ClaimBeforeAccessCheck {
			q.claimReceive()
		}
		return refusedAccess
	}
	// A WRITE with immediate needs a receive before the data of its last packet is written.
	ready := !imm || q.receiveReady()
	if n > 0 && ready {
		if c.Has(wire.End) {
			err = mem.WriteAt(payload, at)
		} else {
			err = nic.WritePart(mem, payload, at)
		}
		if err != nil {
			return refusedOperational
		}
	}
	if !ready {
		return notReady
	}
	if imm {
		q.claimReceive()
	}
	r.advance()
	r.open = messageWrite
	r.write.va, r.write.rkey, r.write.remaining = va+uint64(n), rkey, remaining-min(n, remaining)
	if c.Has(wire.Start) {
		r.write.length = p.RETH.DMALen
	}
	if !c.Has(wire.End) {
		return accepted
	}
	r.open = messageNone
	if !imm {
		r.countMessage()
		return accepted
	}
	r.recv.active = false
	return q.deliver(p, &verbs.WC{
		WRID: r.recv.wrID, Opcode: verbs.WCOpRecvRDMAWithImm, ByteLen: r.write.length,
		Flags: verbs.WCWithImm, Imm: uint32(p.Imm), SrcQP: q.attr.DestQPN,
	})
}

// admitWrite checks the first packet of a WRITE: the QP's access flags, the message length and the
// whole memory range. By the policy ClaimBeforeAccessCheck, a WRITE with immediate that fails the
// check of its memory uses a receive.
func (q *QP) admitWrite(p *wire.Packet) verdict {
	if q.attr.Access&verbs.AccessRemoteWrite == 0 || p.RETH.DMALen > maxMessage {
		return refusedInvalid
	}
	if _, _, err := q.remoteMemory(p.RETH.RKey, p.RETH.VA, uint64(p.RETH.DMALen), verbs.AccessRemoteWrite); err != nil {
		if q.nic.policy.ClaimBeforeAccessCheck && p.BTH.Opcode.Class().Has(wire.CompletesRecv) {
			q.claimReceive()
		}
		return refusedAccess
	}
	return accepted
}
