package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// ackHold keeps back the ACK of a message that the program has answered with a
// message of its own. Where two programs talk in turns, the peer's next message
// is on its way soon; one ACK then does for several messages, and a turn costs
// one packet instead of two.
//
// Nothing says whether the peer goes on without the ACK or waits for it, so that
// is learned. A message that comes while an ACK is held back shows that the peer
// did not wait. An ACK that must leave because its time is up counts against
// holding: the next messages, twice as many each time, are acknowledged at once.
type ackHold struct {
	on    bool
	until mono.Time // when the ACK held back leaves at the latest
	since mono.Time // when the first ACK that it stands for was held back

	eligible bool // the pending ACK is for a message that the application can answer
	covers   int  // messages that the pending ACK stands for
	skip     int  // answered messages to acknowledge at once before the next try
	penalty  int  // what skip becomes if a try fails
	streak   int  // tries in a row that went well

	creditLimit wire.MSN // last message that the advertised credits cover
	counted     bool     // the last AETH sent carried a credit count, not "unlimited"

	strict bool // counted as such in NIC.holds
	queued bool // in NIC.holds
}

const (
	defaultAckHold = 100 * time.Microsecond
	// ackHoldTotal bounds how long a message waits for its ACK while others keep
	// coming, in multiples of Config.AckHold.
	ackHoldTotal = 4
	// ackHoldCovers is how many messages one ACK stands for at most.
	ackHoldCovers = 16
	// ackHoldShare is how much of the transport timer a hold may take up. The
	// peer's timer is not known; most pairs of programs set the same.
	ackHoldShare = 8
	// ackHoldProof is how many messages must be answered before the first try,
	// and how many tries must go well before time is kept less strictly.
	ackHoldProof = 16
	// ackHoldStreak is how many tries in a row show that a failure was chance.
	ackHoldStreak = 256
	// ackHoldWary is how many messages at most are not tried with.
	ackHoldWary = 4096
)

// anew is the hold of a QP that nothing is known of yet.
func (h *ackHold) initial() ackHold {
	return ackHold{skip: ackHoldProof, penalty: ackHoldProof, queued: h.queued}
}

// holdAck is called when a request of ours has left ahead of the pending ACK.
func (q *QP) holdAck(now mono.Time) {
	h, d := &q.resp.hold, q.nic.cfg.AckHold
	if !h.eligible || d < 0 {
		return
	}
	if h.skip > 0 {
		h.skip--
		return
	}
	if h.covers <= 1 {
		h.since = now
	}
	if h.covers >= ackHoldCovers || now.Add(d).Sub(h.since) > ackHoldTotal*d || q.peerShortOfCredits() {
		return
	}
	if t := q.ackTimeout(); t > 0 && t < ackHoldShare*ackHoldTotal*d {
		return
	}
	h.on, h.until, h.strict = true, now.Add(d), h.streak < ackHoldProof
	q.nic.holds.add(q)
}

// peerShortOfCredits reports whether the peer, which counts the receives that it was
// told of, may come to the end of them with its next message.
func (q *QP) peerShortOfCredits() bool {
	h := &q.resp.hold
	return h.counted && h.creditLimit.Sub(q.resp.msn) <= 1
}

// noteAdvertisedCredits notes what an answer tells the peer about receives.
func (q *QP) noteAdvertisedCredits(s wire.Syndrome) wire.Syndrome {
	n, counted := wire.CreditCount(s.Value())
	q.resp.hold.creditLimit, q.resp.hold.counted = q.resp.msn.Add(int32(n)), counted
	return s
}

// releaseAck ends a hold. The ACK stays pending, and leaves when the QP next sends.
func (q *QP) releaseAck() {
	if q.resp.hold.on {
		q.nic.holds.drop(q)
		q.resp.hold.on = false
		q.resp.requestSentFirst = false
	}
}

// notePeerContinued notes that a request has come in order: whoever sent it did not wait
// for the ACK held back.
func (q *QP) notePeerContinued() {
	h := &q.resp.hold
	if !h.on {
		return
	}
	q.releaseAck()
	q.wake() // whatever has come, it may not ask for an ACK itself
	if h.streak++; h.streak >= ackHoldStreak {
		h.streak, h.penalty = ackHoldProof, ackHoldProof
	}
}

// failed notes that the peer seems to have waited for the ACK held back.
func (h *ackHold) noteFailure() {
	h.skip, h.streak = h.penalty, 0
	h.penalty = min(2*h.penalty, ackHoldWary)
}

// holdExpired lets an ACK go whose time is up.
func (q *QP) holdExpired() {
	q.releaseAck()
	q.resp.hold.noteFailure()
	q.wake()
}

// ReleaseAcks lets all ACKs go that are held back, and reports whether there
// were any. A driver asks for it where nobody would be there to keep the time,
// and before a QP is changed or destroyed: what the program has answered is
// acknowledged then.
func (n *NIC) ReleaseAcks() bool {
	if n.holds.held == 0 {
		return false
	}
	for _, e := range n.holds.queue[n.holds.head:] {
		if e.q.resp.hold.on {
			e.q.releaseAck()
			e.q.wake()
		}
	}
	return true
}

// holdQueue is the QPs that hold an ACK back, in the order of time. All hold for
// equally long, so that a queue does. A QP whose hold ends, or begins anew, keeps
// its place and is put right when that comes up.
type holdQueue struct {
	queue  []heldQP
	head   int
	held   int // holds under way
	strict int // those of them that may well delay the peer
}

type heldQP struct {
	q  *QP
	at mono.Time
}

func (f *holdQueue) next() mono.Time {
	if f.head == len(f.queue) {
		return mono.Never
	}
	return f.queue[f.head].at
}

// add counts a hold that has begun.
func (f *holdQueue) add(q *QP) {
	f.held++
	if q.resp.hold.strict {
		f.strict++
	}
	if !q.resp.hold.queued {
		f.push(q)
	}
}

func (f *holdQueue) push(q *QP) {
	if f.head > 0 && len(f.queue) == cap(f.queue) {
		f.queue = append(f.queue[:0], f.queue[f.head:]...)
		f.head = 0
	}
	q.resp.hold.queued = true
	f.queue = append(f.queue, heldQP{q, q.resp.hold.until})
}

// drop counts a hold that ends.
func (f *holdQueue) drop(q *QP) {
	f.held--
	if q.resp.hold.strict {
		f.strict--
	}
}

// due removes and returns a QP whose ACK must leave now, or nil.
func (f *holdQueue) due(now mono.Time) *QP {
	for f.next() <= now {
		q := f.queue[f.head].q
		f.queue[f.head].q = nil
		f.head++
		h := &q.resp.hold
		h.queued = false
		switch {
		case !h.on:
		case h.until <= now:
			return q
		default:
			f.push(q)
		}
	}
	return nil
}
