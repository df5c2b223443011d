package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// wqeState is the progress of a send work request.
type wqeState uint8

const (
	wqePosted wqeState = iota
	wqeSent            // PSNs are assigned; at least one packet was sent
	wqeDone            // completes after all earlier requests
	wqeFailed          // completes in error after all earlier requests; later ones are not sent
)

// sendWQE is a send work request in the send queue.
type sendWQE struct {
	nic.Work
	roceFields
	sendProgress
}

// roceFields are the parts of a send work request that only RoCE has.
type roceFields struct {
	flush verbs.Flush
	srqn  uint32 // XRC
	ah    *AH    // UD
	qpn   uint32
	qkey  uint32
}

// sendProgress is the state of a request on the wire.
type sendProgress struct {
	state       wqeState
	status      verbs.WCStatus
	first, last wire.PSN
	packets     int32
	answered    int32 // READ-like requests: response packets received in order
	restart     int32 // READ: first packet of the last retransmission, counted from 1; 0: none
	resumed     bool  // READ: was retransmitted from the middle
	ssn         wire.MSN
}

// readLike reports whether the request needs a response other than an ACK, and
// therefore a responder resource of the peer.
func (w *sendWQE) readLike() bool {
	switch w.Op {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpFlush, verbs.OpAtomicWrite:
		return true
	}
	return false
}

// local reports whether the request sends no packets.
func (w *sendWQE) local() bool { return w.Op == verbs.OpLocalInv || w.Op == verbs.OpBindMW }

// consumesReceive reports whether the request consumes a receive of the peer.
func (w *sendWQE) consumesReceive() bool {
	switch w.Op {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWriteImm:
		return true
	}
	return false
}

// sendQueue is a ring of send work requests. Indices only increase; at returns the
// entry of an index.
type sendQueue struct {
	ring  []sendWQE
	slots nic.Slots
	depth uint32
	head  uint32 // oldest request not yet completed
	tail  uint32 // next free slot
}

func newSendQueue(c *verbs.QPCaps) sendQueue {
	slots, places := nic.NewSlots(c.MaxSendWR, c.MaxSendSGE, c.MaxInline)
	return sendQueue{ring: make([]sendWQE, places), slots: slots, depth: uint32(c.MaxSendWR)}
}

func (q *sendQueue) at(i uint32) *sendWQE { return &q.ring[i&uint32(len(q.ring)-1)] }
func (q *sendQueue) full() bool           { return q.tail-q.head >= q.depth }
func (q *sendQueue) empty() bool          { return q.tail == q.head }
