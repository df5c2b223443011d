package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// selectSRQ selects the SRQ that an XRC packet names. It returns false if that SRQ is not in the
// QP's XRC domain, or is not the one that earlier packets of the message named.
func (q *QP) selectSRQ(num uint32) bool {
	s := q.nic.SRQ(num)
	if s == nil || s.Type != verbs.SRQXRC || s.XRCD != q.cfg.XRCD || q.resp.open != messageNone && s != q.resp.xrcSRQ {
		return false
	}
	q.resp.xrcSRQ = s
	return true
}

// recvSRQ returns the SRQ of the next receive, or nil if the QP has its own receive queue.
func (q *QP) recvSRQ() *nic.SRQ {
	if q.cfg.Type == verbs.QPTypeXRCRecv {
		return q.resp.xrcSRQ
	}
	return q.cfg.SRQ
}

// nextReceive returns the receive for the next message, or nil, and the PD of its memory.
func (q *QP) nextReceive() (*nic.Receive, nic.PD) {
	s := q.recvSRQ()
	if s == nil {
		return q.rq.Peek(), q.cfg.PD
	}
	w := s.Peek()
	if w == nil {
		return nil, 0
	}
	return w, s.PD
}

// popReceive removes the receive of nextReceive. Its contents stay valid until the next post.
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
// The receive of an abandoned UC message, which is still active, is used again.
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

// completeRecvInError completes the claimed receive with an error status.
func (q *QP) completeRecvInError(status verbs.WCStatus) {
	h := &q.resp.recv
	h.active = false
	q.pushRecv(&verbs.WC{WRID: h.wrID, Status: status})
}

// accessPD is the PD that remote keys are checked in; for XRC, that of the message's SRQ.
func (q *QP) accessPD() nic.PD {
	if s := q.resp.xrcSRQ; s != nil {
		return s.PD
	}
	return q.cfg.PD
}

// remoteMemory resolves an R_Key for this QP. Zero-length accesses are not checked.
func (q *QP) remoteMemory(rkey uint32, va, n uint64, need verbs.Access) (nic.Memory, uint64, error) {
	return q.remoteMemoryIn(q.accessPD(), rkey, va, n, need)
}

// remoteMemoryFor resolves the R_Key of e in the protection domain of the original request.
func (q *QP) remoteMemoryFor(e *replay, va, n uint64) (nic.Memory, uint64, error) {
	return q.remoteMemoryIn(e.pd, e.rkey, va, n, verbs.AccessRemoteRead)
}

// remoteMemoryIn resolves an R_Key for this QP in pd. A zero-length access needs no memory.
func (q *QP) remoteMemoryIn(pd nic.PD, rkey uint32, va, n uint64, need verbs.Access) (nic.Memory, uint64, error) {
	if n == 0 {
		return nil, 0, nil
	}
	return q.nic.Mem.Remote(rkey, nic.TargetQP{PD: pd, QPN: q.num}, va, n, need)
}

// readMemory fills b with data of the READ e, from offset off on: from memory, or from the copy
// that saveReads made before a SEND invalidated the key. It reports false if the memory is not
// readable, or was not when a duplicate of the READ arrived (refused).
func (q *QP) readMemory(e *replay, off uint32, b []byte) bool {
	switch {
	case e.refused:
		return false
	case e.saved.valid:
		copy(b, e.saved.data[off-e.saved.from:])
		return true
	}
	mem, at, err := q.remoteMemoryFor(e, e.va+uint64(off), uint64(len(b)))
	if err != nil {
		return false
	}
	return len(b) == 0 || mem.ReadAt(b, at) == nil
}
