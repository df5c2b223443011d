package engine

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// ackDelay delays the ACK of a message that the application has answered with a
// request. When two applications send in turns, the peer's next message usually
// follows soon, and one ACK can acknowledge several messages.
//
// The responder learns whether the peer waits for ACKs. A message that arrives during a delay
// shows that the peer does not wait. When a delay expires, the responder acknowledges the next
// messages at once, twice as many after each failure.
type ackDelay struct {
	on    bool
	until mono.Time // when the delayed ACK is sent at the latest
	since mono.Time // when the oldest ACK that it covers was delayed, if anyDelayed

	eligible bool // the pending ACK is for a message that the application can answer
	covers   int  // packets that the pending ACK acknowledges

	anyDelayed bool // an ACK that the pending one covers was delayed
	skip       int  // messages to acknowledge at once before the next delay
	penalty    int  // value of skip after the next failure
	streak     int  // consecutive delays that succeeded

	creditLimit wire.MSN // last message that the advertised credits cover
	counted     bool     // the last AETH sent carried a credit count, not "unlimited"

	strict bool // the peer may be waiting for the ACK: it must not be late
	queued bool // in NIC.holds
}

const (
	// ackDelayTotal limits the total delay of an ACK while further messages arrive, in
	// multiples of Config.AckDelay.
	ackDelayTotal = 4
	// ackDelayCovers is the number of packets from which on an ACK that acknowledges them is not delayed.
	ackDelayCovers = 16
	// maxBeforeAck is the maximum number of packets that precede an ACK.
	maxBeforeAck = 16
	// ackDelayShare limits the total delay to 1/ackDelayShare of this QP's ACK timeout.
	// The peer's timeout is unknown but usually the same.
	ackDelayShare = 8
	// ackDelayProof is the number of answered messages before the first delay, and of
	// successful delays after which the deadline is no longer strict.
	ackDelayProof = 16
	// ackDelayStreak is the number of consecutive successes that resets the penalty. They save about as
	// much time as the failure after them costs. On a busy machine a peer often continues late because
	// it lost its processor, so a longer streak would be rare there.
	ackDelayStreak = 64
	// ackDelayWary is the maximum penalty.
	ackDelayWary = 1024
)

// noteFailure records that the peer probably waited for the delayed ACK, which ends the streak of
// successful delays. The next ACKs (skip of them) are sent at once, twice as many after each
// failure, up to ackDelayWary.
func (h *ackDelay) noteFailure() {
	h.skip, h.streak = h.penalty, 0
	h.penalty = min(2*h.penalty, ackDelayWary)
}

// delayedAcks holds delayed ACKs and their QPs, ordered by deadline. All delays are
// equally long, so a FIFO is sorted. A QP whose delay ends or restarts keeps its
// entry; due corrects it.
type delayedAcks struct {
	queue  []delayedAck
	head   int
	count  int // QPs that delay an ACK
	strict int // of them, QPs whose peer may be waiting for the ACK
}

type delayedAck struct {
	q     *QP
	delay *ackDelay
	at    mono.Time
}

// next returns the time of the first entry, at which due must be called; mono.Never if none.
func (f *delayedAcks) next() mono.Time {
	if f.head == len(f.queue) {
		return mono.Never
	}
	return f.queue[f.head].at
}

// add records that q delays an ACK; h is the state of the delay. It increments f.count and, if the
// peer may be waiting for the ACK, f.strict. A QP that is still queued after an earlier delay keeps
// its place.
func (f *delayedAcks) add(q *QP, h *ackDelay) {
	f.count++
	if h.strict {
		f.strict++
	}
	if !h.queued {
		f.enqueue(q, h)
	}
}

// enqueue adds q at the end. If the slice is full, it first reuses the part before head.
func (f *delayedAcks) enqueue(q *QP, h *ackDelay) {
	if f.head > 0 && len(f.queue) == cap(f.queue) {
		f.queue = append(f.queue[:0], f.queue[f.head:]...)
		f.head = 0
	}
	h.queued = true
	f.queue = append(f.queue, delayedAck{q, h, h.until})
}

// drop undoes the counting of add when a delay ends. The entry of its QP stays queued until due
// removes it.
func (f *delayedAcks) drop(h *ackDelay) {
	f.count--
	if h.strict {
		f.strict--
	}
}

// due removes and returns a QP whose delayed ACK must be sent now, or nil. It also removes entries
// of QPs that no longer delay an ACK, and queues those again whose delay has restarted.
func (f *delayedAcks) due(now mono.Time) *QP {
	for f.next() <= now {
		q, h := f.queue[f.head].q, f.queue[f.head].delay
		f.queue[f.head] = delayedAck{}
		f.head++
		h.queued = false
		switch {
		case !h.on:
		case h.until <= now:
			return q
		default:
			f.enqueue(q, h)
		}
	}
	return nil
}
