package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// Refs are the engine's own objects behind the handles of a work request.
type Refs struct {
	AH     *AH
	Window *core.Window
	Region *core.Region
}

// PostSend queues one send work request. It copies what it needs of wr.
func (q *QP) PostSend(now mono.Time, wr *verbs.SendWR, refs Refs) error {
	if err := q.checkSend(wr, &refs); err != nil {
		return err
	}
	if q.sq.full() {
		if q.nic.q.OverflowSendQueue {
			return nil
		}
		return opError("post_send", q.name(), "%w: %d requests queued", verbs.ErrNoMemory, q.sq.depth)
	}
	w := q.enqueueSend(wr, &refs)
	switch q.state {
	case verbs.QPStateErr, verbs.QPStateSQE:
		q.sq.head = q.sq.tail - 1 // the only one: earlier ones were flushed
		q.completeSend(w, verbs.WCWRFlushErr)
		q.req.cur = q.sq.tail
	default:
		q.wake()
	}
	return nil
}

func (q *QP) enqueueSend(wr *verbs.SendWR, refs *Refs) *sendWQE {
	i := q.sq.tail
	w := q.sq.at(i)
	*w = sendWQE{
		wrID: wr.WRID, op: wr.Opcode, flags: wr.Flags,
		imm: wr.Imm, invalidate: uint32(wr.InvalidateRKey), remote: wr.Remote, atomic: wr.Atomic,
		flush: wr.Flush, srqn: wr.XRC.SRQN, ah: refs.AH, qpn: uint32(wr.UD.QPN), qkey: wr.UD.QKey, window: refs.Window,
	}
	if q.signalAll {
		w.flags |= verbs.SendSignaled
	}
	if wr.Flags&verbs.SendInline != 0 && len(wr.Inline) > 0 {
		at := q.sq.inlineSlot(i)
		w.inline = append(q.sq.inline[at:at:at+q.sq.maxInline], wr.Inline...)
		w.length = uint32(len(wr.Inline))
	} else if wr.Flags&verbs.SendInline == 0 {
		at := q.sq.sgeSlot(i)
		w.sges = append(q.sq.sges[at:at:at+q.sq.maxSGE], wr.SGL...)
		w.length = sgeLength(wr.SGL)
	}
	if wr.Opcode == verbs.OpBindMW {
		w.bind = core.Bind{
			Region: refs.Region, Addr: wr.Bind.Info.Addr, Len: wr.Bind.Info.Length,
			Access: wr.Bind.Info.Access, Key: uint32(wr.Bind.RKey), PD: q.pd, QPN: q.num,
		}
	}
	q.sq.tail++
	return w
}

// checkSend refuses what can be seen to be wrong at once.
func (q *QP) checkSend(wr *verbs.SendWR, refs *Refs) error {
	invalid := func(format string, args ...any) error {
		return opError("post_send", q.name(), "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	if !sends(q.typ) {
		return invalid("%v has no send queue", q.typ)
	}
	switch q.state {
	case verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR:
		if q.nic.q.RefusedWRStays && !q.sq.full() {
			q.enqueueSend(wr, refs)
		}
		return invalid("state is %v", q.state)
	}
	if !opcodeAllowed(q.typ, wr.Opcode) {
		return invalid("%v on %v", wr.Opcode, q.typ)
	}
	var length uint64
	if wr.Flags&verbs.SendInline != 0 {
		switch wr.Opcode {
		case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
			return invalid("%v has no payload to send inline", wr.Opcode)
		}
		if len(wr.Inline) > q.sq.maxInline {
			return invalid("%d bytes inline, the QP takes %d", len(wr.Inline), q.sq.maxInline)
		}
		length = uint64(len(wr.Inline))
	} else {
		if len(wr.SGL) > q.sq.maxSGE {
			return invalid("%d gather entries, the QP takes %d", len(wr.SGL), q.sq.maxSGE)
		}
		for i := range wr.SGL {
			length += uint64(wr.SGL[i].Length)
		}
	}
	switch wr.Opcode {
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite:
		if length != 8 {
			return invalid("%v with %d bytes of local memory, not 8", wr.Opcode, length)
		}
	case verbs.OpBindMW:
		if refs.Window == nil {
			return invalid("bind without a window")
		}
	}
	if length > maxMessage {
		return invalid("message of %d bytes, limit %d", length, uint64(maxMessage))
	}
	if q.typ == verbs.QPTypeUD {
		switch {
		case refs.AH == nil:
			return invalid("datagram without an address handle")
		case refs.AH.pd != q.pd && !q.nic.q.AHOtherPD:
			return invalid("address handle belongs to another protection domain")
		case q.nic.cfg.UDOversizeError && length > uint64(q.nic.MTU().Bytes()):
			return invalid("datagram of %d bytes, the port carries %v", length, q.nic.MTU())
		}
	}
	return nil
}

// opcodeAllowed says which operations a QP type has.
func opcodeAllowed(t verbs.QPType, op verbs.WROpcode) bool {
	switch op {
	case verbs.OpSend, verbs.OpSendImm:
		return true
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpLocalInv, verbs.OpBindMW:
		return t != verbs.QPTypeUD
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpSendInv, verbs.OpFlush, verbs.OpAtomicWrite:
		return t == verbs.QPTypeRC || t == verbs.QPTypeXRCSend
	}
	return false
}

// PostRecv queues one receive work request.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	if q.srq != nil || !receives(q.typ) || q.typ == verbs.QPTypeXRCRecv {
		return opError("post_recv", q.name(), "%w: receives come from a shared queue", verbs.ErrInvalid)
	}
	switch q.state {
	case verbs.QPStateReset:
		return opError("post_recv", q.name(), "%w: state is %v", verbs.ErrInvalid, q.state)
	case verbs.QPStateErr:
		q.pushRecv(&verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr})
		return nil
	}
	return q.rq.post(wr)
}

// completeSend retires the oldest send work request. Success is reported only
// if it was asked for, failure always.
func (q *QP) completeSend(w *sendWQE, status verbs.WCStatus) {
	q.sq.head++
	q.nic.Count.Sends++
	if status == verbs.WCSuccess && w.flags&verbs.SendSignaled == 0 {
		return
	}
	wc := verbs.WC{WRID: w.wrID, Status: status, Opcode: wcOpcode(w.op), QPN: verbs.QPN(q.num)}
	if status == verbs.WCSuccess && (w.op == verbs.OpRDMARead || w.op == verbs.OpAtomicCmpAndSwp || w.op == verbs.OpAtomicFetchAdd) {
		wc.ByteLen = w.length
	}
	if !q.sendCQ.push(&wc, false) {
		q.fail()
	}
}

func wcOpcode(op verbs.WROpcode) verbs.WCOpcode {
	switch op {
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		return verbs.WCOpRDMAWrite
	case verbs.OpRDMARead:
		return verbs.WCOpRDMARead
	case verbs.OpAtomicCmpAndSwp:
		return verbs.WCOpCompSwap
	case verbs.OpAtomicFetchAdd:
		return verbs.WCOpFetchAdd
	case verbs.OpLocalInv:
		return verbs.WCOpLocalInv
	case verbs.OpBindMW:
		return verbs.WCOpBindMW
	case verbs.OpFlush:
		return verbs.WCOpFlush
	case verbs.OpAtomicWrite:
		return verbs.WCOpAtomicWrite
	default:
		return verbs.WCOpSend
	}
}
