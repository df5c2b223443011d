package engine

import (
	"math"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// Refs are the engine objects of the handles in a work request.
type Refs struct {
	AH     *AH
	Window *nic.Window
	Region *nic.Region
}

// PostSend queues a copy of one send work request. refs has the objects that wr refers to. In ERR,
// the request completes at once, flushed.
func (q *QP) PostSend(now mono.Time, wr *verbs.SendWR, refs Refs) error {
	q.nic.clock = now
	if err := q.checkSend(wr, &refs); err != nil {
		return err
	}
	switch {
	case q.state == verbs.QPStateErr:
		q.push(q.SendCQ, &verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr, Opcode: nic.CompletionOpcode(wr.Opcode)}, notSolicited)
		return nil
	case q.state < verbs.QPStateRTS:
		return q.OpError("post_send", verbs.ErrInvalid, "state is %v", q.state)
	case len(q.free) == 0:
		return q.OpError("post_send", verbs.ErrNoMemory, "%d requests queued", q.Caps.MaxSendWR)
	}
	slot := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	r := &q.work[slot]
	*r = request{slot: slot, qpn: uint32(wr.UD.QPN), qkey: wr.UD.QKey}
	q.Slots.Store(&r.Work, slot, wr, q.SignalAll)
	if refs.AH != nil {
		r.path = refs.AH.path
	}
	if wr.Opcode == verbs.OpBindMW {
		r.StoreBind(wr, refs.Window, refs.Region, q.PD, q.QPN)
	}
	q.pending.Push(slot)
	q.queueOutput()
	return nil
}

// checkSend returns an error for a send work request that ibv_post_send must refuse.
func (q *QP) checkSend(wr *verbs.SendWR, refs *Refs) error {
	invalid := func(why string, args ...any) error { return q.OpError("post_send", verbs.ErrInvalid, why, args...) }
	if !q.allows(wr.Opcode) {
		service := "UD"
		if q.Reliable {
			service = "RD"
		}
		return q.OpError("post_send", verbs.ErrNotSupported, "%v on %s", wr.Opcode, service)
	}
	maxMessage := uint64(math.MaxUint32)
	if !q.Reliable && wr.Opcode == verbs.OpSend {
		maxMessage = MaxUDSend
	}
	if err := q.CheckLengths(wr, maxMessage, refs.Window); err != nil {
		return err
	}
	switch {
	case wr.Opcode == verbs.OpLocalInv || wr.Opcode == verbs.OpBindMW:
		return nil
	case refs.AH == nil || refs.AH.gone:
		return invalid("datagram without an address handle, or with one that was destroyed")
	case refs.AH.pd != q.PD:
		return invalid("address handle belongs to another protection domain")
	case q.Reliable && isGroup(refs.AH.path.dst.Addr()):
		return invalid("reliable datagrams go to one QP, not to group %v", refs.AH.path.dst.Addr())
	}
	return nil
}

// allows reports whether the type of the QP supports op.
func (q *QP) allows(op verbs.WROpcode) bool {
	switch op {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpLocalInv, verbs.OpBindMW:
		return true
	case verbs.OpSendInv, verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return q.Reliable
	}
	return false
}

// PostRecv queues one receive work request. In ERR, the request completes at once, flushed.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	switch {
	case q.SRQ != nil:
		return q.OpError("post_recv", verbs.ErrInvalid, "receives come from a shared queue")
	case q.state == verbs.QPStateReset:
		return q.OpError("post_recv", verbs.ErrInvalid, "state is %v", q.state)
	case q.state == verbs.QPStateErr:
		q.push(q.RecvCQ, &verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv}, notSolicited)
		return nil
	}
	return q.RQ.Post(wr)
}

// receivesLeft returns the number of posted receives.
func (q *QP) receivesLeft() int {
	if q.SRQ != nil {
		return int(q.SRQ.Count())
	}
	return int(q.RQ.Count())
}

// queueOutput queues the QP for Output, if it has requests.
func (q *QP) queueOutput() {
	if !q.queued && q.pending.Len() > 0 && q.maySend() {
		q.queued = true
		q.nic.sending.Push(q)
	}
}

// executeLocal executes and completes a Local Invalidate or Bind request. An error fails the QP.
func (q *QP) executeLocal(r *request) {
	status := q.ExecuteLocal(&r.Work)
	q.complete(r, status)
	if status != verbs.WCSuccess {
		q.fail()
	}
}
