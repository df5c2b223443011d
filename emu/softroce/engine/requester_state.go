package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// requester is the sending side of a connected QP. PSNs in [una, max) are unacknowledged. next is
// the PSN to send now; it equals max except during retransmission.
type requester struct {
	una, next, max wire.PSN
	cur            uint32 // index of the request being sent
	pkt            int32  // its next packet
	reads          int    // READ-like requests before cur without a complete response
	ssn            wire.MSN

	retryState
	lastNAK
	ackRequest

	limited bool     // the peer advertises a credit count
	lsn     wire.MSN // limit sequence number: last request covered by credits

	paced              bool // waits for congestion control
	stalled            bool // stopped for good, by policy
	ackMayCompleteRead bool // the current ACK may complete a READ
	drainNotify        bool // raise SQ_DRAINED when draining ends
}

// retryState has the retries that are left, and the timers after which the requester retransmits.
type retryState struct {
	retries    uint8
	rnrRetries uint8
	timer      mono.Time // transport timer (ACK timeout)
	rnrUntil   mono.Time // end of the RNR wait, or mono.Never
}

// lastNAK is the NAK for which the requester has retransmitted.
type lastNAK struct {
	nakSeen bool // and there was no progress since
	nakPSN  wire.PSN
	nakEnd  wire.PSN // max at that time
}

// ackRequest is the last packet that was sent with AckReq.
type ackRequest struct {
	ackReqPSN   wire.PSN // the last PSN that its ACK or response acknowledges
	ackReqAt    uint32   // its request in the send queue
	sinceAckReq int32    // packets sent after it
	soliciting  bool     // the next packet must have AckReq
}

// halfPSNSpace is the maximum number of unacknowledged PSNs. With more, the peer
// could not tell duplicates from new packets.
const halfPSNSpace = 1 << 23

func (r *requester) outstanding() bool { return r.una != r.max }

// awaitsAck reports whether a packet with AckReq is unacknowledged.
func (r *requester) awaitsAck() bool { return r.outstanding() && r.ackReqPSN.Sub(r.una) >= 0 }

// ackRequested notes that the packet sent now has AckReq. psn is the last PSN that its ACK or response
// acknowledges.
func (r *requester) ackRequested(psn wire.PSN) {
	r.ackRequest = ackRequest{ackReqPSN: psn, ackReqAt: r.cur}
}

// sinceUna returns the distance from una to psn modulo 2^24. Unlike PSN.Sub, it is exact for the
// full range una..max.
func (r *requester) sinceUna(psn wire.PSN) int32 { return int32((psn - r.una) & wire.PSNMask) }

// acknowledgeSent acknowledges what was sent, for services without ACKs.
func (r *requester) acknowledgeSent() { r.una, r.max = r.next, r.next }

// nextWQE moves to the next request.
func (r *requester) nextWQE() {
	r.cur++
	r.pkt = 0
}

// stopTimers stops the transport timer and ends an RNR wait.
func (r *retryState) stopTimers() { r.timer, r.rnrUntil = mono.Never, mono.Never }

// stall stops the requester for good.
func (r *requester) stall() { r.stalled, r.timer = true, mono.Never }

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

// sendQueue is a ring of send work requests. Indices only increase; at returns an index's entry.
type sendQueue struct {
	ring  []sendWQE // has room for depth requests once so many have been posted; its length is a power of two
	slots nic.Slots
	depth uint32
	head  uint32 // oldest request not yet completed
	tail  uint32 // next free slot
}

func newSendQueue(c *verbs.QPCaps) sendQueue {
	const firstRing = 16
	slots, places := nic.NewSlots(min(c.MaxSendWR, firstRing), c.MaxSendSGE, c.MaxInline)
	return sendQueue{ring: make([]sendWQE, places), slots: slots, depth: uint32(c.MaxSendWR)}
}

// grow doubles the ring. The requests keep their gather lists and inline data, which are in the slots
// of the old ring.
func (q *sendQueue) grow() {
	slots, places := nic.NewSlots(2*len(q.ring), q.slots.MaxSGE(), q.slots.MaxInline())
	to := sendQueue{ring: make([]sendWQE, places), slots: slots, depth: q.depth, head: q.head, tail: q.tail}
	for i := q.head; i != q.tail; i++ {
		*to.at(i) = *q.at(i)
	}
	*q = to
}

func (q *sendQueue) at(i uint32) *sendWQE { return &q.ring[i&uint32(len(q.ring)-1)] }
func (q *sendQueue) full() bool           { return q.tail-q.head >= q.depth }
func (q *sendQueue) empty() bool          { return q.tail == q.head }

// expectsResponse reports whether op is a response opcode for w.
func (w *sendWQE) expectsResponse(op wire.Operation) bool {
	switch w.Op {
	case verbs.OpRDMARead:
		return op != wire.OpAtomicAcknowledge
	case verbs.OpFlush, verbs.OpAtomicWrite:
		return op == wire.OpReadResponseOnly
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return op == wire.OpAtomicAcknowledge
	}
	return false
}

// inSequence reports whether the opcode of a READ response fits its position in the READ. A READ
// that was retransmitted from the middle may be answered as the rest of the original or as a new
// READ.
func (w *sendWQE) inSequence(op wire.Operation) bool {
	first, last := w.answered == 0, w.answered == w.packets-1
	switch op {
	case wire.OpReadResponseFirst:
		return !last && (first || w.resumed)
	case wire.OpReadResponseMiddle:
		return !last && !first
	case wire.OpReadResponseLast:
		return last && !first
	default:
		return last && (first || w.resumed)
	}
}

// find returns the sent request that psn belongs to, or nil.
func (q *sendQueue) find(psn wire.PSN) *sendWQE {
	for i := q.head; i != q.tail; i++ {
		w := q.at(i)
		if w.state == wqeSent && psn.Sub(w.first) >= 0 && psn.Sub(w.last) <= 0 {
			return w
		}
	}
	return nil
}
