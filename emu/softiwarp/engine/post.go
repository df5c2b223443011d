package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Refs are the engine objects of the handles in a work request.
type Refs struct {
	Window *nic.Window
	Region *nic.Region
}

// PostSend queues one send work request. In ERR and SQE, iWARP's Terminate state, the request
// completes at once, flushed.
func (q *QP) PostSend(wr *verbs.SendWR, refs *Refs) error {
	if err := q.checkSend(wr, refs); err != nil {
		return err
	}
	switch q.state {
	case verbs.QPStateErr, verbs.QPStateSQE:
		q.push(q.sendCQ, &verbs.WC{
			WRID: wr.WRID, Status: verbs.WCWRFlushErr, Opcode: nic.CompletionOpcode(wr.Opcode), VendorErr: q.vendorErr,
		}, notSolicited)
		return nil
	case verbs.QPStateRTS:
	default:
		return nic.OpError("post_send", q.name(), "%w: it is not connected, its state is %v", verbs.ErrInvalid, q.state)
	}
	if q.sq.count() >= q.sq.depth {
		return nic.OpError("post_send", q.name(), "%w: %d requests queued", verbs.ErrNoMemory, q.sq.depth)
	}
	i := q.sq.tail
	r := &q.sq.ring[int(i)&(len(q.sq.ring)-1)]
	q.sq.slots.Store(&r.Work, i, wr, q.signalAll)
	if wr.Opcode == verbs.OpBindMW {
		r.KeepBind(wr, refs.Window, refs.Region, q.endpoint.PD, q.num)
	}
	q.sq.tail++
	q.stream.Post(r)
	q.conn.queueOutput()
	return nil
}

// checkSend checks a send work request before it is queued.
func (q *QP) checkSend(wr *verbs.SendWR, refs *Refs) error {
	invalid := func(format string, args ...any) error {
		return nic.OpError("post_send", q.name(), "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	if q.gone() {
		return invalid("it is gone")
	}
	if err := q.checkOpcode(wr); err != nil {
		return err
	}
	inline := wr.Flags&verbs.SendInline != 0
	length, limit := uint64(len(wr.Inline)), q.sq.slots.MaxInline()
	if !inline {
		length = 0
		for i := range wr.SGL {
			length += uint64(wr.SGL[i].Length)
		}
	}
	atomic := wr.Opcode == verbs.OpAtomicCmpAndSwp || wr.Opcode == verbs.OpAtomicFetchAdd
	read := wr.Opcode == verbs.OpRDMARead
	switch {
	case inline && (atomic || read):
		return invalid("%v has no payload to send inline", wr.Opcode)
	case inline && len(wr.Inline) > limit:
		return invalid("%d bytes inline, the QP takes %d", len(wr.Inline), limit)
	case !inline && len(wr.SGL) > q.sq.slots.MaxSGE():
		return invalid("%d gather entries, the QP takes %d", len(wr.SGL), q.sq.slots.MaxSGE())
	case atomic && length != 8:
		return invalid("%v with %d bytes of local memory, not 8", wr.Opcode, length)
	case length >= 1<<32:
		return invalid("message of %d bytes: the length has 32 bits", length)
	case wr.Opcode == verbs.OpSendImm && length > 0:
		return nic.OpError("post_send", q.name(), "%w: %v with a payload: iWARP sends immediate data as a message of its own, "+
			"behind a write or alone", verbs.ErrNotSupported, wr.Opcode)
	case wr.Opcode == verbs.OpBindMW && (refs == nil || refs.Window == nil):
		return invalid("bind without a window")
	case (atomic || read) && q.state == verbs.QPStateRTS && q.conn != nil && q.conn.depths.ord == 0:
		return invalid("%v: the peer takes none (ORD is 0)", wr.Opcode)
	}
	return nil
}

// checkOpcode rejects operations that iWARP does not have.
func (q *QP) checkOpcode(wr *verbs.SendWR) error {
	supported := false
	switch wr.Opcode {
	case verbs.OpSend, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.OpLocalInv, verbs.OpBindMW:
		supported = true
	case verbs.OpSendImm, verbs.OpRDMAWriteImm, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd: // RFC 7306
		supported = !q.nic.policy.Stream.NoExtensions
	}
	if !supported {
		return nic.OpError("post_send", q.name(), "%w: %v over iWARP", verbs.ErrNotSupported, wr.Opcode)
	}
	return nil
}

// PostRecv queues one receive work request. After an error, also while the Terminate is being sent (SQE),
// the request completes at once, flushed.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	switch {
	case q.gone():
		return nic.OpError("post_recv", q.name(), "%w: it is gone", verbs.ErrInvalid)
	case q.srq != nil:
		return nic.OpError("post_recv", q.name(), "%w: receives come from a shared queue", verbs.ErrInvalid)
	case len(wr.SGL) > q.rq.MaxSGE():
		return nic.OpError("post_recv", q.name(), "%w: %d scatter entries, the QP takes %d", verbs.ErrInvalid, len(wr.SGL), q.rq.MaxSGE())
	case q.state == verbs.QPStateErr, q.state == verbs.QPStateSQE:
		q.push(q.recvCQ, &verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv, VendorErr: q.vendorErr}, notSolicited)
		return nil
	}
	return q.rq.Post(wr)
}
