package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// wqeState is how far a send work request has got.
type wqeState uint8

const (
	wqePosted wqeState = iota
	wqeSent            // PSNs are assigned, at least one packet has left
	wqeDone            // waits only for its turn to complete
	wqeFailed          // fails when its turn comes; nothing behind it is sent
)

// sendWQE is a send work request on its way.
type sendWQE struct {
	wrID   uint64
	op     verbs.WROpcode
	flags  verbs.SendFlags
	state  wqeState
	status verbs.WCStatus

	sges   []verbs.SGE // into sendQueue.sges
	inline []byte      // into sendQueue.inline; nil if the payload is in sges
	length uint32

	imm        uint32
	invalidate uint32
	remote     verbs.Remote
	atomic     verbs.Atomic
	flush      verbs.Flush
	srqn       uint32

	ah   *AH // UD
	qpn  uint32
	qkey uint32

	window *core.Window // bind
	bind   core.Bind

	first, last wire.PSN
	packets     int32
	answered    int32 // READ and the like: response packets received, in order
	resumed     bool  // READ: was asked for again from the middle on
	ssn         wire.MSN
}

// readLike reports whether the request is answered by more than an ACK and so
// takes one of the peer's responder resources.
func (w *sendWQE) readLike() bool {
	switch w.op {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpFlush, verbs.OpAtomicWrite:
		return true
	}
	return false
}

// local reports whether the request never reaches the wire.
func (w *sendWQE) local() bool { return w.op == verbs.OpLocalInv || w.op == verbs.OpBindMW }

// consumesReceive reports whether the peer needs a receive for the request.
func (w *sendWQE) consumesReceive() bool {
	switch w.op {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWriteImm:
		return true
	}
	return false
}

// sendQueue is a ring of send work requests. Indices only grow; slot maps them.
type sendQueue struct {
	ring      []sendWQE
	sges      []verbs.SGE
	inline    []byte
	depth     uint32
	maxSGE    int
	maxInline int
	head      uint32 // oldest not yet completed
	tail      uint32 // next free
}

func newSendQueue(depth, maxSGE, maxInline int) sendQueue {
	slots := ceilPow2(depth)
	return sendQueue{
		ring:   make([]sendWQE, slots),
		sges:   make([]verbs.SGE, slots*maxSGE),
		inline: make([]byte, slots*maxInline),
		depth:  uint32(depth), maxSGE: maxSGE, maxInline: maxInline,
	}
}

func (q *sendQueue) slot(i uint32) uint32    { return i & uint32(len(q.ring)-1) }
func (q *sendQueue) at(i uint32) *sendWQE    { return &q.ring[q.slot(i)] }
func (q *sendQueue) full() bool              { return q.tail-q.head >= q.depth }
func (q *sendQueue) empty() bool             { return q.tail == q.head }
func (q *sendQueue) sgeSlot(i uint32) int    { return int(q.slot(i)) * q.maxSGE }
func (q *sendQueue) inlineSlot(i uint32) int { return int(q.slot(i)) * q.maxInline }

// recvWQE is a receive work request.
type recvWQE struct {
	wrID   uint64
	sges   []verbs.SGE
	length uint32
}

// recvQueue is a ring of receive work requests, of a QP or of an SRQ.
type recvQueue struct {
	ring   []recvWQE
	sges   []verbs.SGE
	depth  uint32
	maxSGE int
	head   uint32
	tail   uint32
}

func newRecvQueue(depth, maxSGE int) recvQueue {
	slots := ceilPow2(depth)
	return recvQueue{ring: make([]recvWQE, slots), sges: make([]verbs.SGE, slots*maxSGE), depth: uint32(depth), maxSGE: maxSGE}
}

func (q *recvQueue) count() uint32 { return q.tail - q.head }

// post copies wr into the ring.
func (q *recvQueue) post(wr *verbs.RecvWR) error {
	switch {
	case len(wr.SGL) > q.maxSGE:
		return opError("post_recv", "", "%w: %d scatter entries, limit %d", verbs.ErrInvalid, len(wr.SGL), q.maxSGE)
	case q.count() >= q.depth:
		return opError("post_recv", "", "%w: %d receives queued", verbs.ErrNoMemory, q.depth)
	}
	q.put(wr)
	return nil
}

func (q *recvQueue) put(wr *verbs.RecvWR) {
	i := int(q.tail) & (len(q.ring) - 1)
	w := &q.ring[i]
	w.wrID = wr.WRID
	w.sges = append(q.sges[i*q.maxSGE:i*q.maxSGE:(i+1)*q.maxSGE], wr.SGL...)
	w.length = sgeLength(wr.SGL)
	q.tail++
}

// peek returns the oldest receive, or nil. It stays valid until the slot is
// posted to again, which cannot happen before take.
func (q *recvQueue) peek() *recvWQE {
	if q.count() == 0 {
		return nil
	}
	return &q.ring[int(q.head)&(len(q.ring)-1)]
}

func (q *recvQueue) take() { q.head++ }

func sgeLength(sgl []verbs.SGE) uint32 {
	var n uint64
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return uint32(min(n, 1<<32-1))
}

// ceilPow2 is the smallest power of two that is at least n, and at least 1.
func ceilPow2(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}
