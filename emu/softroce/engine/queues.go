package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
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
	nic.Work
	roceFields
	sendProgress
}

// roceFields is what a request says that only RoCE has.
type roceFields struct {
	flush verbs.Flush
	srqn  uint32 // XRC
	ah    *AH    // UD
	qpn   uint32
	qkey  uint32
}

// transit is how far a request has got.
type sendProgress struct {
	state       wqeState
	status      verbs.WCStatus
	first, last wire.PSN
	packets     int32
	answered    int32 // READ and the like: response packets received, in order
	restart     int32 // READ: which packet the last repetition began at, from 1; 0: none
	resumed     bool  // READ: was asked for again from the middle on
	ssn         wire.MSN
}

// readLike reports whether the request is answered by more than an ACK and so
// takes one of the peer's responder resources.
func (w *sendWQE) readLike() bool {
	switch w.Op {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpFlush, verbs.OpAtomicWrite:
		return true
	}
	return false
}

// local reports whether the request never reaches the wire.
func (w *sendWQE) local() bool { return w.Op == verbs.OpLocalInv || w.Op == verbs.OpBindMW }

// consumesReceive reports whether the peer needs a receive for the request.
func (w *sendWQE) consumesReceive() bool {
	switch w.Op {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWriteImm:
		return true
	}
	return false
}

// sendQueue is a ring of send work requests. Indices only grow; at maps them.
type sendQueue struct {
	ring  []sendWQE
	slots nic.Slots
	depth uint32
	head  uint32 // oldest not yet completed
	tail  uint32 // next free
}

func newSendQueue(c *verbs.QPCaps) sendQueue {
	slots, places := nic.NewSlots(c.MaxSendWR, c.MaxSendSGE, c.MaxInline)
	return sendQueue{ring: make([]sendWQE, places), slots: slots, depth: uint32(c.MaxSendWR)}
}

func (q *sendQueue) at(i uint32) *sendWQE { return &q.ring[i&uint32(len(q.ring)-1)] }
func (q *sendQueue) full() bool           { return q.tail-q.head >= q.depth }
func (q *sendQueue) empty() bool          { return q.tail == q.head }
