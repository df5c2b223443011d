package engine

import (
	"math"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Refs are the engine objects of the handles in a work request.
type Refs struct {
	Window *nic.Window
	Region *nic.Region
}

// PostSend queues one send work request; refs has the window and the region of a bind. In ERR and
// SQE, iWARP's Terminate state, the request completes at once, flushed.
func (q *QP) PostSend(wr *verbs.SendWR, refs Refs) error {
	if err := q.checkSend(wr, refs); err != nil {
		return err
	}
	switch q.state {
	case verbs.QPStateErr, verbs.QPStateSQE:
		q.push(q.SendCQ, &verbs.WC{
			WRID: wr.WRID, Status: verbs.WCWRFlushErr, Opcode: nic.CompletionOpcode(wr.Opcode), VendorErr: q.vendorErr,
		}, notSolicited)
		return nil
	case verbs.QPStateRTS:
	default:
		return q.OpError("post_send", verbs.ErrInvalid, "it is not connected, its state is %v", q.state)
	}
	if q.sq.count() >= q.Caps.MaxSendWR {
		return q.OpError("post_send", verbs.ErrNoMemory, "%d requests queued", q.Caps.MaxSendWR)
	}
	i := q.sq.tail
	r := &q.sq.ring[int(i)&(len(q.sq.ring)-1)] // the length is a power of two
	q.Slots.Store(&r.Work, i, wr, q.SignalAll)
	if wr.Opcode == verbs.OpBindMW {
		r.StoreBind(wr, refs.Window, refs.Region, q.PD, q.QPN)
	}
	q.sq.tail++
	q.stream.Post(r)
	q.conn.queueOutput()
	return nil
}

// checkSend returns an error for a send work request that ibv_post_send must refuse. A device with
// the policy NoExtensions lacks the operations of RFC 7306.
func (q *QP) checkSend(wr *verbs.SendWR, refs Refs) error {
	supported, needsORD := false, false
	switch wr.Opcode {
	case verbs.OpSend, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpLocalInv, verbs.OpBindMW:
		supported = true
	case verbs.OpRDMARead:
		supported, needsORD = true, true
	case verbs.OpSendImm, verbs.OpRDMAWriteImm: // RFC 7306
		supported = !q.nic.policy.Stream.NoExtensions
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd: // RFC 7306
		supported, needsORD = !q.nic.policy.Stream.NoExtensions, true
	}
	switch {
	case q.gone():
		return q.OpError("post_send", verbs.ErrInvalid, "the QP was destroyed")
	case !supported:
		return q.OpError("post_send", verbs.ErrNotSupported, "%v over iWARP", wr.Opcode)
	}
	const maxMessage = math.MaxUint32
	if err := q.CheckLengths(wr, maxMessage, refs.Window); err != nil {
		return err
	}
	if needsORD && q.state == verbs.QPStateRTS && q.conn != nil && q.conn.depths.ord == 0 {
		return q.OpError("post_send", verbs.ErrInvalid, "%v: the peer takes none (ORD is 0)", wr.Opcode)
	}
	return nil
}

// PostRecv queues one receive work request. After an error, also while the Terminate is being sent
// (SQE), the request completes at once, flushed.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	switch {
	case q.gone():
		return q.OpError("post_recv", verbs.ErrInvalid, "the QP was destroyed")
	case q.SRQ != nil:
		return q.OpError("post_recv", verbs.ErrInvalid, "receives come from a shared queue")
	case len(wr.SGL) > q.RQ.MaxSGE():
		return q.OpError("post_recv", verbs.ErrInvalid, "%d scatter entries, the QP takes %d", len(wr.SGL), q.RQ.MaxSGE())
	case q.state == verbs.QPStateErr, q.state == verbs.QPStateSQE:
		q.push(q.RecvCQ, &verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv, VendorErr: q.vendorErr}, notSolicited)
		return nil
	}
	return q.RQ.Post(wr)
}
