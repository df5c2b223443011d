package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// Refs are the engine objects that a work request refers to by handle.
type Refs struct {
	AH     *AH
	Window *nic.Window
	Region *nic.Region
}

// PostSend posts one send request. In ERR and SQE it is flushed at once. PostSend does not keep wr.
func (q *QP) PostSend(_ mono.Time, wr *verbs.SendWR, refs Refs) error {
	if err := q.checkSend(wr, &refs); err != nil {
		return err
	}
	failed := q.state == verbs.QPStateErr || q.state == verbs.QPStateSQE
	switch {
	case q.state < verbs.QPStateRTS:
		return nic.OpError("post_send", q.name(), "%w: state is %v", verbs.ErrInvalid, q.state)
	case q.sq.full():
		return nic.OpError("post_send", q.name(), "%w: %d requests queued", verbs.ErrNoMemory, q.sq.depth)
	}
	w := q.enqueueSend(wr, &refs)
	switch {
	case failed: // all earlier requests were flushed already
		q.completeSend(w, verbs.WCWRFlushErr)
		q.req.cur = q.sq.tail
	case !q.supportsOp(wr.Opcode): // the policy CheckOpcodeLate lets it pass checkSend: it completes in error
		status := verbs.WCLocQPOpErr
		if q.nic.policy.LocalErrors == LocalErrorFlushes {
			status = verbs.WCWRFlushErr
		}
		q.failRequest(w, status)
		q.wake()
	default:
		q.wake()
	}
	return nil
}

// enqueueSend copies a work request, which was checked, to the tail of the send queue.
func (q *QP) enqueueSend(wr *verbs.SendWR, refs *Refs) *sendWQE {
	i := q.sq.tail
	if i-q.sq.head == uint32(len(q.sq.ring)) {
		q.sq.grow()
	}
	w := q.sq.at(i)
	q.sq.slots.Store(&w.Work, i, wr, q.cfg.SignalAll)
	w.roceFields = roceFields{flush: wr.Flush, srqn: wr.XRC.SRQN, ah: refs.AH, qpn: uint32(wr.UD.QPN), qkey: wr.UD.QKey}
	w.sendProgress = sendProgress{}
	if wr.Opcode == verbs.OpBindMW {
		w.StoreBind(wr, refs.Window, refs.Region, q.cfg.PD, q.num)
	}
	q.sq.tail++
	return w
}

// checkSend returns an error for a send work request that ibv_post_send must refuse. With the
// policy CheckOpcodeLate, an operation that the QP type does not support passes, and fails later.
func (q *QP) checkSend(wr *verbs.SendWR, refs *Refs) error {
	invalid := func(format string, args ...any) error {
		return nic.OpError("post_send", q.name(), "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	if !hasRequester(q.cfg.Type) {
		return invalid("%v has no send queue", q.cfg.Type)
	}
	if !q.supportsOp(wr.Opcode) && !q.nic.policy.CheckOpcodeLate {
		return invalid("%v on %v", wr.Opcode, q.cfg.Type)
	}
	length := uint64(len(wr.Inline))
	if wr.Flags&verbs.SendInline == 0 {
		length = 0
		for i := range wr.SGL {
			length += uint64(wr.SGL[i].Length)
		}
	}
	atomic := wr.Opcode == verbs.OpAtomicCmpAndSwp || wr.Opcode == verbs.OpAtomicFetchAdd
	switch {
	case wr.Flags&verbs.SendInline != 0 && (atomic || wr.Opcode == verbs.OpRDMARead):
		return invalid("%v has no payload to send inline", wr.Opcode)
	case wr.Flags&verbs.SendInline != 0 && len(wr.Inline) > q.sq.slots.MaxInline():
		return invalid("%d bytes inline, the QP takes %d", len(wr.Inline), q.sq.slots.MaxInline())
	case len(wr.SGL) > q.sq.slots.MaxSGE() && wr.Flags&verbs.SendInline == 0:
		return invalid("%d gather entries, the QP takes %d", len(wr.SGL), q.sq.slots.MaxSGE())
	case atomic && length != 8, wr.Opcode == verbs.OpAtomicWrite && length != 8:
		return invalid("%v with %d bytes of local memory, not 8", wr.Opcode, length)
	case length > maxMessage:
		return invalid("message of %d bytes, limit %d", length, uint64(maxMessage))
	case wr.Opcode == verbs.OpBindMW && refs.Window == nil:
		return invalid("bind without a window")
	case q.cfg.Type == verbs.QPTypeUD && refs.AH == nil:
		return invalid("datagram without an address handle")
	case q.cfg.Type == verbs.QPTypeUD && refs.AH.gone:
		return invalid("address handle was destroyed")
	case q.cfg.Type == verbs.QPTypeUD && refs.AH.pd != q.cfg.PD:
		return invalid("address handle belongs to another protection domain")
	}
	return nil
}

// PostRecv posts one receive work request. In ERR it is flushed at once.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	if q.cfg.SRQ != nil || !hasResponder(q.cfg.Type) || q.cfg.Type == verbs.QPTypeXRCRecv {
		return nic.OpError("post_recv", q.name(), "%w: the QP has no receive queue of its own", verbs.ErrInvalid)
	}
	if len(wr.SGL) > q.rq.MaxSGE() {
		return nic.OpError("post_recv", q.name(), "%w: %d scatter entries, the QP takes %d", verbs.ErrInvalid, len(wr.SGL), q.rq.MaxSGE())
	}
	switch q.state {
	case verbs.QPStateReset:
		return nic.OpError("post_recv", q.name(), "%w: state is %v", verbs.ErrInvalid, q.state)
	case verbs.QPStateErr:
		q.pushRecv(&verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr})
		return nil
	}
	return q.rq.Post(wr)
}
