package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// execute executes the request packet with the expected PSN.
func (q *QP) execute(p *wire.Packet) verdict {
	info, _ := p.BTH.Opcode.Info()
	if !q.inSequence(info.Class) || !q.lengthOK(info.Class, p) {
		return refusedInvalid
	}
	if q.typ == verbs.QPTypeXRCRecv && !q.selectSRQ(p.XRCETH.SRQN) {
		return refusedInvalid
	}
	switch {
	case info.Class.Has(wire.Send):
		return q.executeSend(p, info.Class)
	case info.Class.Has(wire.Write):
		return q.executeWrite(p, info.Class)
	default:
		return q.executeRead(p, info.Class)
	}
}

// inSequence checks an opcode against the unfinished message: FIRST, MIDDLE and
// LAST must follow each other.
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

// lengthOK checks the payload length of a packet against its position in the
// message.
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

// accessPD is the protection domain that remote keys are checked in.
func (q *QP) accessPD() nic.PD {
	if q.typ == verbs.QPTypeXRCRecv && q.resp.xrcSRQ != nil {
		return q.resp.xrcSRQ.PD
	}
	return q.pd
}

// selectSRQ selects the SRQ that an XRC packet names, which must be in the QP's XRC
// domain. All packets of a message must name the same SRQ.
func (q *QP) selectSRQ(num uint32) bool {
	s := q.nic.SRQ(num)
	if s == nil || s.Type != verbs.SRQXRC || s.XRCD != q.xrcd || q.resp.open != messageNone && s != q.resp.xrcSRQ {
		return false
	}
	q.resp.xrcSRQ, q.resp.xrcCQ = s, s.CQ
	return true
}

// recvSRQ returns the SRQ of the next receive, or nil if the QP has its own receive
// queue.
func (q *QP) recvSRQ() *nic.SRQ {
	if q.typ == verbs.QPTypeXRCRecv {
		return q.resp.xrcSRQ
	}
	return q.srq
}

// nextReceive returns the receive for the next message and the protection domain of
// its memory, or nil.
func (q *QP) nextReceive() (*nic.Receive, nic.PD) {
	s := q.recvSRQ()
	if s == nil {
		return q.rq.Peek(), q.pd
	}
	w := s.Peek()
	if w == nil {
		return nil, 0
	}
	return w, s.PD
}

// popReceive removes the receive that nextReceive returned. Its contents stay valid
// until the next post.
func (q *QP) popReceive() {
	if s := q.recvSRQ(); s != nil {
		s.Take()
	} else {
		q.rq.Take()
	}
}

// receiveReady reports whether claimReceive would succeed.
func (q *QP) receiveReady() bool {
	w, _ := q.nextReceive()
	return q.resp.recv.active || w != nil
}

// claimReceive takes a receive for a new message and reports whether there was one.
// It first reuses the receive of an abandoned UC message.
func (q *QP) claimReceive() bool {
	h := &q.resp.recv
	if h.active {
		h.filled = 0
		return true
	}
	w, pd := q.nextReceive()
	if w == nil {
		return false
	}
	h.active, h.wrID, h.length, h.filled = true, w.WRID, w.Length, 0
	h.sges = append(h.sges[:0], w.SGL...)
	h.pd = pd
	q.popReceive()
	return true
}

// placeSend copies the payload of a SEND into the claimed receive.
func (q *QP) placeSend(payload []byte) verdict {
	h := &q.resp.recv
	if uint64(h.filled)+uint64(len(payload)) > uint64(h.length) {
		if !q.reliable() && q.srq == nil {
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

// failReceive completes the claimed receive with status. sendFatalNAK then reports
// neither a second completion nor an event.
func (q *QP) failReceive(status verbs.WCStatus) {
	q.completeRecvInError(status)
	q.resp.causeReported = true
}

// executeSend executes one packet of a SEND.
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
	v := q.deliver(p, &wc)
	return v
}

// deliver completes a receive. If the CQ is full, the QP fails and the message is
// not acknowledged.
func (q *QP) deliver(p *wire.Packet, wc *verbs.WC) verdict {
	q.resp.solicited = p.BTH.Solicited
	ok := q.pushRecv(wc)
	q.resp.solicited = false
	if !ok {
		return silentlyFailed
	}
	q.countMessage()
	return accepted
}

// remoteInvalidate executes the invalidation of a SEND with invalidate. A failure
// completes the receive in error and fails the QP without a NAK.
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
		q.resp.fatal = true
	}
	q.fail()
	return silentlyFailed
}

// executeWrite executes one packet of an RDMA WRITE.
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
	// A WRITE with immediate needs a receive before any data is written.
	ready := !imm || q.receiveReady()
	if n > 0 && ready {
		if err := mem.WriteAt(payload, at); err != nil {
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
		q.countMessage()
		return accepted
	}
	r.recv.active = false
	return q.deliver(p, &verbs.WC{
		WRID: r.recv.wrID, Opcode: verbs.WCOpRecvRDMAWithImm, ByteLen: r.write.length,
		Flags: verbs.WCWithImm, Imm: uint32(p.Imm), SrcQP: q.attr.DestQPN,
	})
}

// admitWrite checks the first packet of a WRITE: the QP's access flags, the message
// length and the whole memory range.
func (q *QP) admitWrite(p *wire.Packet) verdict {
	switch {
	case !q.allowsAccess(verbs.AccessRemoteWrite), p.RETH.DMALen > maxMessage:
		return refusedInvalid
	}
	if _, _, err := q.remoteMemory(p.RETH.RKey, p.RETH.VA, uint64(p.RETH.DMALen), verbs.AccessRemoteWrite); err != nil {
		info, _ := p.BTH.Opcode.Info()
		if q.nic.policy.ClaimBeforeAccessCheck && info.Class.Has(wire.CompletesRecv) {
			q.claimReceive()
		}
		return refusedAccess
	}
	return accepted
}

// allowsAccess reports whether the QP lets its peer have an access.
func (q *QP) allowsAccess(need verbs.Access) bool {
	return q.attr.Access&need != 0
}

// remoteMemory resolves an R_Key for this QP. Zero-length accesses are not checked.
func (q *QP) remoteMemory(rkey uint32, va, n uint64, need verbs.Access) (nic.Memory, uint64, error) {
	return q.remoteMemoryIn(q.accessPD(), rkey, va, n, need)
}
