package engine

import (
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

// PostSend queues one send work request. It copies what it needs of wr.
func (q *QP) PostSend(now mono.Time, wr *verbs.SendWR, refs Refs) error {
	q.nic.clock = now
	if err := q.checkSend(wr, &refs); err != nil {
		return err
	}
	switch {
	case q.state == verbs.QPStateErr:
		q.push(q.sendCQ, &verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr, Opcode: nic.CompletionOpcode(wr.Opcode)}, false)
		return nil
	case q.state < verbs.QPStateRTS:
		return nic.OpError("post_send", q.name(), "%w: state is %v", verbs.ErrInvalid, q.state)
	case len(q.free) == 0:
		return nic.OpError("post_send", q.name(), "%w: %d requests queued", verbs.ErrNoMemory, q.caps.MaxSendWR)
	}
	place := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	r := &q.work[place]
	*r = request{place: place, qpn: uint32(wr.UD.QPN), qkey: wr.UD.QKey}
	q.slots.Store(&r.Work, place, wr, q.signalAll)
	if refs.AH != nil {
		r.path = refs.AH.path
	}
	if wr.Opcode == verbs.OpBindMW {
		r.KeepBind(wr, refs.Window, refs.Region, q.endpoint.PD, q.num)
	}
	q.pending.Push(place)
	q.queueOutput()
	return nil
}

// checkSend returns an error for a send work request that ibv_post_send must refuse.
func (q *QP) checkSend(wr *verbs.SendWR, refs *Refs) error {
	invalid := func(format string, args ...any) error {
		return nic.OpError("post_send", q.name(), "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	if !q.allows(wr.Opcode) {
		service := "UD"
		if q.reliable {
			service = "RD"
		}
		return nic.OpError("post_send", q.name(), "%w: %v on %s", verbs.ErrNotSupported, wr.Opcode, service)
	}
	inline := wr.Flags&verbs.SendInline != 0
	length := uint64(len(wr.Inline))
	if !inline {
		length = 0
		for i := range wr.SGL {
			length += uint64(wr.SGL[i].Length)
		}
	}
	limit := uint64(maxMessage)
	if !q.reliable && wr.Opcode == verbs.OpSend {
		limit = MaxUDSend
	}
	local := wr.Opcode == verbs.OpLocalInv || wr.Opcode == verbs.OpBindMW
	atomic := wr.Opcode == verbs.OpAtomicCmpAndSwp || wr.Opcode == verbs.OpAtomicFetchAdd
	switch {
	case inline && (atomic || wr.Opcode == verbs.OpRDMARead):
		return invalid("%v has no payload to send inline", wr.Opcode)
	case inline && len(wr.Inline) > q.slots.MaxInline():
		return invalid("%d bytes inline, the QP takes %d", len(wr.Inline), q.slots.MaxInline())
	case !inline && len(wr.SGL) > q.slots.MaxSGE():
		return invalid("%d gather entries, the QP takes %d", len(wr.SGL), q.slots.MaxSGE())
	case atomic && length != 8:
		return invalid("%v with %d bytes of local memory, not 8", wr.Opcode, length)
	case length > limit:
		return invalid("message of %d bytes, limit %d", length, limit)
	case wr.Opcode == verbs.OpSendImm && length > 0:
		return nic.OpError("post_send", q.name(), "%w: %v with a payload: iWARP sends immediate data as a message of its own", verbs.ErrNotSupported, wr.Opcode)
	case wr.Opcode == verbs.OpBindMW && refs.Window == nil:
		return invalid("bind without a window")
	case local:
		return nil
	case refs.AH == nil || refs.AH.gone:
		return invalid("datagram without an address handle, or with one that is gone")
	case refs.AH.pd != q.endpoint.PD:
		return invalid("address handle belongs to another protection domain")
	case q.reliable && isGroup(refs.AH.path.dst.Addr()):
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
		return q.reliable
	}
	return false
}

// PostRecv queues one receive work request.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	switch {
	case q.srq != nil:
		return nic.OpError("post_recv", q.name(), "%w: receives come from a shared queue", verbs.ErrInvalid)
	case q.state == verbs.QPStateReset:
		return nic.OpError("post_recv", q.name(), "%w: state is %v", verbs.ErrInvalid, q.state)
	case q.state == verbs.QPStateErr:
		q.push(q.recvCQ, &verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv}, false)
		return nil
	}
	return q.rq.Post(wr)
}

// receive returns the oldest posted receive, without removing it, and its protection domain; nil if
// there is none.
func (q *QP) receive() (*nic.Receive, nic.PD) {
	if q.srq != nil {
		w := q.srq.Peek()
		if w == nil {
			return nil, 0
		}
		return w, q.srq.PD
	}
	return q.rq.Peek(), q.endpoint.PD
}

// takeReceive removes the receive that QP.receive returns.
func (q *QP) takeReceive() {
	if q.srq != nil {
		q.srq.Take()
	} else {
		q.rq.Take()
	}
}

// receivesLeft returns the number of posted receives.
func (q *QP) receivesLeft() int {
	if q.srq != nil {
		return int(q.srq.Count())
	}
	return int(q.rq.Count())
}

// queueOutput queues the QP for Output, if it has requests.
func (q *QP) queueOutput() {
	if !q.queued && q.pending.Len() > 0 && q.sends() {
		q.queued = true
		q.nic.sending.Push(q)
	}
}

// executeLocal executes and completes a Local Invalidate or Bind request. An error fails the QP.
func (q *QP) executeLocal(r *request) {
	n := q.nic
	status := verbs.WCSuccess
	if r.Op == verbs.OpLocalInv {
		if n.Mem.Invalidate(r.Invalidate, q.endpoint.PD, q.num) != nil {
			status = verbs.WCLocProtErr
		}
	} else if n.Mem.Bind(r.Window, r.Bind) != nil {
		status = verbs.WCMWBindErr
	}
	q.complete(r, status)
	if status != verbs.WCSuccess {
		q.fail()
	}
}
