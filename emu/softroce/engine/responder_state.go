package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// responder is the receiving side of a connected QP.
type responder struct {
	expected wire.PSN
	ackPSN   wire.PSN // PSN of the last SEND, WRITE or atomic executed
	msn      wire.MSN

	unfinished
	pendingAnswer

	established bool // COMM_EST was reported
	seqNAKed    bool // a sequence NAK was sent for expected
	rnrNAKed    bool // an RNR NAK was sent for expected

	reading     bool // replays has unsent responses
	requestTurn bool // interleaveRequest: the next packet is a request
	replays     replayRing

	xrcSRQ *nic.SRQ // SRQ of the current XRC packet
}

// unfinished is the state of the message whose packets arrive.
type unfinished struct {
	open         message
	discarding   bool // UC: the responder drops the rest of the message
	gapInMessage bool // a packet of the open message was lost
	recv         recvInProgress
	write        struct {
		va        uint64
		rkey      uint32
		remaining uint32
		length    uint32 // length of the message
	}
	causeReported bool // the receive completed with the cause; the fatal NAK reports no event
	solicited     bool // the last message was solicited; completions in error always are
}

// pendingAnswer is the ACK or NAK that is sent next.
type pendingAnswer struct {
	pending       bool // answer must be sent
	answer        answer
	sentBeforeAck int // packets of a message that were sent ahead of the pending ACK
	delay         ackDelay
	fatal         bool // answer is a NAK to send although the QP is in ERR
}

// message is the type of an unfinished message.
type message uint8

const (
	messageNone message = iota
	messageSend
	messageWrite
)

// answer is an ACK or NAK.
type answer struct {
	psn      wire.PSN
	syndrome wire.Syndrome
	ack      bool // ACK: the syndrome is computed when it is sent
}

// recvInProgress is the receive that the unfinished message fills.
type recvInProgress struct {
	active bool
	wrID   uint64
	sges   []verbs.SGE
	length uint32
	filled uint32
	pd     nic.PD
}

// verdict is the result of executing a request packet.
type verdict uint8

const (
	accepted verdict = iota
	refusedInvalid
	refusedAccess
	refusedOperational
	notReady
	silentlyFailed // the QP failed and sends no NAK
)

// reset sets r to the state of a new QP, which does not delay its first ACKs (ackDelayProof). It keeps
// the memory of the scatter list, and queued, because the QP may still be in NIC.holds, the queue
// of delayed ACKs.
func (r *responder) reset() {
	queued, sges := r.delay.queued, r.recv.sges[:0]
	*r = responder{}
	r.delay = ackDelay{skip: ackDelayProof, penalty: ackDelayProof, queued: queued}
	r.recv.sges = sges
}

// countMessage increments the MSN after a request was executed completely.
func (r *responder) countMessage() { r.msn = r.msn.Next() }

// advance moves past a PSN that was executed and that an ACK acknowledges.
func (r *responder) advance() {
	r.ackPSN = r.expected
	r.expected = r.expected.Add(1)
}

// resize changes the number of replay entries (max_dest_rd_atomic). It keeps the newest
// ones, and overwrites older ones even if they are unanswered.
func (r *responder) resize(n int) {
	old := r.replays
	const evenUnanswered = true
	const firstRing = 4
	r.replays = replayRing{ring: make([]replay, min(n, firstRing)), limit: n}
	for i := max(0, old.count-n); i < old.count; i++ {
		*r.replays.add(evenUnanswered) = *old.at(i)
	}
}

// dropPending drops all unsent responses.
func (r *responder) dropPending() {
	r.pending, r.reading, r.delay.covers = false, false, 0
	for i := range r.replays.count {
		r.replays.at(i).finish()
	}
}

// replay is an executed READ, atomic, FLUSH or ATOMIC WRITE, kept to repeat its
// response, and the state of the response being sent.
type replay struct {
	op          wire.Operation
	first, last wire.PSN
	va          uint64
	rkey        uint32
	length      uint32
	original    uint64 // result of an atomic, repeated for duplicates
	msn         wire.MSN
	pd          nic.PD // protection domain in which rkey is checked
	delivered   bool   // a response was sent completely
	response
}

// response is a response being sent, with the PSNs [from, to]; next is the next one. A duplicate
// READ may request less than the original.
type response struct {
	from, next, to wire.PSN
	end            uint32 // offset of the end of the response in the READ
	unsent         bool
	refused        bool // a duplicate READ arrived after its key had become invalid
	continued      bool // respond with MIDDLE and LAST
	saved          savedBytes
}

// savedBytes are the bytes that a READ response needs of memory whose key was
// invalidated by a later request before the response was sent.
type savedBytes struct {
	valid bool
	from  uint32 // offset in the READ
	data  []byte
}

// finish ends the response being sent.
func (e *response) finish() { e.unsent, e.saved = false, savedBytes{} }

// readsBy reports whether the unsent response to a READ needs memory of rkey.
func (e *replay) readsBy(rkey uint32) bool {
	return e.unsent && e.op == wire.OpReadRequest && e.rkey == rkey && !e.refused && !e.saved.valid
}

// offset returns how many bytes of the READ the response packets before the next one carry.
func (e *replay) offset(mtu int32) uint32 { return uint32(e.next.Sub(e.first)) * uint32(mtu) }

// replayRing holds the last max_dest_rd_atomic requests, oldest first.
type replayRing struct {
	ring  []replay // has room for limit entries once there are so many
	limit int
	head  int
	count int
	idle  int // number of oldest entries without a response to send; due skips them
}

func (r *replayRing) at(i int) *replay { return &r.ring[(r.head+i)%len(r.ring)] }

// grow doubles the ring, up to its limit.
func (r *replayRing) grow() {
	ring := make([]replay, min(r.limit, 2*len(r.ring)))
	for i := range r.count {
		ring[i] = *r.at(i)
	}
	r.ring, r.head = ring, 0
}

// add returns a new entry and overwrites the oldest if the ring is full. If the oldest was never
// answered, the peer has exceeded max_dest_rd_atomic: add returns nil, unless evenUnanswered is
// set. An unsent repetition does not count, because a peer that sends a new request has received
// the first response.
func (r *replayRing) add(evenUnanswered bool) *replay {
	if len(r.ring) == 0 {
		return nil
	}
	switch {
	case r.count == r.limit:
		if !r.at(0).delivered && !evenUnanswered {
			return nil
		}
		r.head = (r.head + 1) % len(r.ring)
		r.count--
		r.idle = max(0, r.idle-1) // idle counted the oldest entry, which was removed
	case r.count == len(r.ring):
		r.grow()
	}
	r.count++
	e := r.at(r.count - 1)
	*e = replay{}
	return e
}

// find returns the newest entry whose PSNs include psn, or nil. PSNs wrap around, so an older entry
// may include psn as well.
func (r *replayRing) find(psn wire.PSN) *replay {
	for i := r.count - 1; i >= 0; i-- {
		if e := r.at(i); psn.Sub(e.first) >= 0 && psn.Sub(e.last) <= 0 {
			return e
		}
	}
	return nil
}

// due returns the entry whose response is sent next, in PSN order, or nil. With newFirst repeated
// responses are sent last. It advances r.idle past the oldest entries without a response to send.
func (r *replayRing) due(newFirst bool) *replay {
	var found *replay
	for i := min(r.idle, r.count); i < r.count; i++ {
		e := r.at(i)
		if !e.unsent {
			if i == r.idle {
				r.idle++
			}
			continue
		}
		if !newFirst || !e.delivered {
			return e
		}
		if found == nil {
			found = e
		}
	}
	return found
}

// markUnsent lowers r.idle, if needed, so that due finds entry e: e has a response to send, and due
// does not look at the r.idle oldest entries, which have none.
func (r *replayRing) markUnsent(e *replay) {
	for i := r.count - 1; i >= 0; i-- {
		if r.at(i) == e {
			r.idle = min(r.idle, i)
			return
		}
	}
}
