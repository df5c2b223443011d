package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// nextRequest builds the next request packet and reports whether one could be sent: none during an
// RNR wait, or after a policy has stopped the requester for good (stalled). In SQD no new request
// starts.
func (q *QP) nextRequest(now mono.Time, d *link.Datagram) bool {
	r := &q.req
	if q.state != verbs.QPStateRTS && q.state != verbs.QPStateSQD || r.rnrUntil != mono.Never || r.stalled {
		return false
	}
	for r.cur != q.sq.tail {
		w := q.sq.at(r.cur)
		switch w.state {
		case wqeFailed:
			return false
		case wqeDone: // a completed local operation
			r.nextWQE()
			continue
		case wqePosted:
			if q.state == verbs.QPStateSQD {
				return false
			}
			if !q.mayStart(w) {
				if q.solicitAck() { // it may wait for earlier requests
					continue
				}
				return false
			}
			if w.local() {
				q.runLocal(w)
				continue
			}
		}
		if !q.mayContinue(now, w) {
			if q.awaitsCredits(w) && q.solicitAck() { // ACKs return credits
				continue
			}
			return false
		}
		if w.state == wqePosted {
			q.assignPSNs(w)
		}
		return q.emitRequest(now, d, w)
	}
	return false
}

// mayStart reports whether a new request may start: its fence, the peer's responder resources and
// the PSN space allow it. A local invalidate waits until all earlier requests have completed. A
// READ-like request that can never start fails.
func (q *QP) mayStart(w *sendWQE) bool {
	r := &q.req
	if w.Flags&verbs.SendFence != 0 && r.reads > 0 {
		return false
	}
	switch {
	case w.Op == verbs.OpLocalInv:
		return r.cur == q.sq.head // after all earlier requests completed
	case !w.readLike():
		return true
	case q.attr.MaxRdAtomic == 0:
		q.localError(w, verbs.WCLocQPOpErr)
		return false
	case r.reads >= int(q.attr.MaxRdAtomic):
		return false
	case !q.resultWritable(w):
		q.failRequest(w, verbs.WCLocProtErr) // not localError: no policy changes this status
		return false
	}
	// A READ uses one PSN per response packet.
	return r.sinceUna(r.next)+q.packets(w) <= halfPSNSpace
}

// resultWritable reports whether the local buffer of a READ or atomic is writable. The requester
// calls it before it sends, because an atomic whose result cannot be stored must not be executed.
func (q *QP) resultWritable(w *sendWQE) bool {
	switch w.Op {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return q.nic.Writable(w.SGL, q.cfg.PD, int(w.Length))
	default:
		return true
	}
}

// awaitsCredits reports whether the next packet of w must wait for an ACK: without credits, one packet is
// sent at a time.
func (q *QP) awaitsCredits(w *sendWQE) bool {
	return q.reliable() && w.consumesReceive() && q.beyondCredits(w) && q.req.next != q.req.una
}

// mayContinue reports whether window, credits and rate limit allow another packet.
func (q *QP) mayContinue(now mono.Time, w *sendWQE) bool {
	r := &q.req
	if q.reliable() {
		if int(r.sinceUna(r.next)) >= q.nic.cfg.WindowPackets {
			return false
		}
		if q.awaitsCredits(w) {
			return false // without credits, send one packet at a time
		}
	}
	return !q.rateLimited(now)
}

// beyondCredits reports whether the peer's credits do not cover w.
func (q *QP) beyondCredits(w *sendWQE) bool {
	ssn := w.ssn
	if w.state == wqePosted {
		ssn = q.req.ssn.Next()
	}
	return q.req.limited && ssn.Sub(q.req.lsn) > 0
}

// assignPSNs assigns PSNs and the send sequence number (SSN) to a request.
func (q *QP) assignPSNs(w *sendWQE) {
	r := &q.req
	w.state = wqeSent
	w.packets = q.packets(w)
	w.first = r.next
	w.last = r.next.Add(w.packets - 1)
	r.ssn = r.ssn.Next()
	w.ssn = r.ssn
}

// packets returns the number of PSNs of a request: one for each packet of data in either direction.
func (q *QP) packets(w *sendWQE) int32 {
	if w.readLike() && w.Op != verbs.OpRDMARead {
		return 1
	}
	return packetCount(w.Length, q.mtu)
}

// runLocal executes a request that sends no packets: a bind of a window or a local invalidate.
func (q *QP) runLocal(w *sendWQE) {
	var err error
	if w.Op == verbs.OpBindMW {
		err = q.nic.Mem.Bind(w.Window, w.Bind)
	} else {
		err = q.nic.Mem.Invalidate(w.Invalidate, q.cfg.PD, q.num)
	}
	switch {
	case err == nil:
		q.completeLocal(w)
	case w.Op == verbs.OpBindMW && w.Window.Type == verbs.MWType1 && w.Bind.Access&verbs.AccessZeroBased != 0:
		q.failRequest(w, verbs.WCMWBindErr) // not localError: no policy changes this status, libibverbs itself rejects it
	default:
		q.localError(w, verbs.WCMWBindErr)
	}
}

// completeLocal completes the request at cur without sending a packet.
func (q *QP) completeLocal(w *sendWQE) {
	w.state = wqeDone
	q.retire()
}

// emitRequest builds the next packet of w and advances the requester; false after a local error.
func (q *QP) emitRequest(now mono.Time, d *link.Datagram, w *sendWQE) bool {
	r := &q.req
	advance := int32(1)
	if w.readLike() {
		if !q.buildRead(d, w) {
			return false
		}
		advance = w.packets - r.pkt
	} else if !q.buildData(d, w) {
		return false
	}
	q.nic.seal(d, &q.path.icrc)
	r.next = r.next.Add(advance)
	r.pkt += advance
	if r.sinceUna(r.next) > r.sinceUna(r.max) {
		r.max = r.next
	} else {
		q.nic.Count.Retransmits++
	}
	if r.pkt == w.packets {
		r.nextWQE()
		if w.readLike() && q.reliable() {
			r.reads++
		}
	}
	q.chargeRate(now, d)
	if q.reliable() {
		q.armTimer(now)
		return true
	}
	r.acknowledgeSent()
	if r.pkt == 0 { // the last packet of the UC request
		w.state = wqeDone
		q.retire()
	}
	return true
}

// buildData builds a SEND or WRITE packet. It reports false after a local error.
func (q *QP) buildData(d *link.Datagram, w *sendWQE) bool {
	r := &q.req
	off := uint32(r.pkt) * uint32(q.mtu)
	n := min(w.Length-off, uint32(q.mtu))
	last := r.pkt == w.packets-1
	p := q.header(dataOperation(w, r.pkt == 0, last), r.next)
	p.BTH.Solicited = last && w.Flags&verbs.SendSolicited != 0 && w.consumesReceive()
	p.BTH.AckReq = q.reliable() && q.wantAck(w, last)
	p.RETH = wire.RETH{VA: w.Remote.Addr, RKey: uint32(w.Remote.RKey), DMALen: w.Length}
	p.Imm = wire.ImmDt(w.Imm)
	p.IETH = wire.IETH{RKey: w.Invalidate}
	p.XRCETH = wire.XRCETH{SRQN: w.srqn}
	payload := writeHeaders(d, &q.path, p, int(n))
	if err := w.Gather(&q.nic.Base, q.cfg.PD, payload, off); err != nil {
		q.localError(w, verbs.WCLocProtErr)
		return false
	}
	return true
}

// wantAck reports whether to set AckReq: on the last packet of a message, unless its ACK may be saved,
// four times per window, on packets sent without credits, and after solicitAck.
func (q *QP) wantAck(w *sendWQE, last bool) bool {
	r := &q.req
	r.sinceAckReq++
	every := int32(max(1, q.nic.cfg.WindowPackets/4))
	if last && !q.savesAck(w) || r.sinceAckReq >= every || w.consumesReceive() && q.beyondCredits(w) || r.soliciting {
		r.ackRequested(r.next)
		return true
	}
	return false
}

// savesAck reports whether Config.SparseAckReq saves the ACK of a request: of an unsignaled WRITE, but for
// four in a send queue. If the newest packet is retransmitted, it must be acknowledged; so must all if the
// peer counts credits, and those before a local request, which waits for them.
func (q *QP) savesAck(w *sendWQE) bool {
	r := &q.req
	if !q.nic.cfg.SparseAckReq || w.Signaled() || w.consumesReceive() || r.limited {
		return false
	}
	next := r.cur + 1
	beforeLocal := next != q.sq.tail && q.sq.at(next).local()
	return !beforeLocal && r.next.Next() != r.max && int32(r.cur-r.ackReqAt) < int32(q.sq.depth/4)
}

// dataOperation returns the operation of a SEND or WRITE packet by its place in the message.
// From base on they are FIRST, MIDDLE, LAST, LAST with immediate, ONLY, ONLY with immediate.
func dataOperation(w *sendWQE, first, last bool) wire.Operation {
	base, imm := wire.OpSendFirst, w.Op == verbs.OpSendImm || w.Op == verbs.OpRDMAWriteImm
	if w.Op == verbs.OpRDMAWrite || w.Op == verbs.OpRDMAWriteImm {
		base = wire.OpWriteFirst
	}
	switch {
	case w.Op == verbs.OpSendInv && first && last:
		return wire.OpSendOnlyInv
	case w.Op == verbs.OpSendInv && last:
		return wire.OpSendLastInv
	case first && last && imm:
		return base + 5
	case first && last:
		return base + 4
	case last && imm:
		return base + 3
	case last:
		return base + 2
	case first:
		return base
	default:
		return base + 1
	}
}

// buildRead builds a READ, atomic, FLUSH or ATOMIC WRITE request. A retransmitted
// READ requests only the missing part. It reports false after a local error.
func (q *QP) buildRead(d *link.Datagram, w *sendWQE) bool {
	r := &q.req
	var op wire.Operation
	n := 0
	done := uint32(r.pkt) * uint32(q.mtu)
	reth := wire.RETH{VA: w.Remote.Addr, RKey: uint32(w.Remote.RKey), DMALen: w.Length}
	atomic := wire.AtomicETH{VA: w.Remote.Addr, RKey: uint32(w.Remote.RKey)}
	var feth wire.FETH
	switch w.Op {
	case verbs.OpRDMARead:
		op = wire.OpReadRequest
		w.resumed = w.resumed || r.pkt > 0
		reth.VA += uint64(done)
		reth.DMALen -= done
	case verbs.OpAtomicCmpAndSwp:
		op = wire.OpCompareSwap
		atomic.SwapAdd, atomic.Compare = w.Atomic.Swap, w.Atomic.CompareAdd
	case verbs.OpAtomicFetchAdd:
		op = wire.OpFetchAdd
		atomic.SwapAdd = w.Atomic.CompareAdd
	case verbs.OpAtomicWrite:
		op, n = wire.OpAtomicWrite, 8
	default:
		op = wire.OpFlush
		reth.DMALen = w.flush.Length
		feth = wire.FETH{Placement: uint8(w.flush.Type), Selectivity: uint8(w.flush.Level)}
	}
	p := q.header(op, r.next)
	p.BTH.AckReq = true
	r.ackRequested(w.last)
	p.RETH, p.AtomicETH, p.FETH = reth, atomic, feth
	p.XRCETH = wire.XRCETH{SRQN: w.srqn}
	payload := writeHeaders(d, &q.path, p, n)
	if n > 0 {
		if err := w.Gather(&q.nic.Base, q.cfg.PD, payload, 0); err != nil {
			q.localError(w, verbs.WCLocProtErr)
			return false
		}
	}
	return true
}
