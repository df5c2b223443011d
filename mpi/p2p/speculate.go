package p2p

import (
	"maps"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// senderState is the state of a sender for an envelope, which has the receiving rank as Source.
type senderState struct {
	// firstUnmatched and lastUnmatched are the list of sends whose RTS was sent and whose
	// receive is unknown, in order. The next RTR belongs to the first of them.
	firstUnmatched, lastUnmatched *Request
	// rtrs are the RTRs that no send has used.
	rtrs rtrQueue

	// eagerSent says that an eager message was sent whose receive may have sent an RTR.
	// RTRs cannot be assigned to sends any more.
	eagerSent bool
	// stopped says that an RTS has told the receiver to send no RTRs and to ignore its
	// outstanding ones; stopUnconfirmed, that the receiver has not yet acknowledged that.
	stopped, stopUnconfirmed bool
	// withoutRTSAck is the number of sends without Done whose RTS had the flag NoRTSAck. Their
	// receives become known by Done only.
	withoutRTSAck int
	usage         usage
}

// usage counts how many RTRs of an envelope were used.
type usage struct {
	received, used int
	tooFewRTRsUsed bool // no more RTRs are wanted
	// While RTRs are stopped: the number of sends, and how many would have used an RTR.
	sends, wouldHaveUsedRTR int
}

// maxEnvelopes limits the envelopes that a sender or receiver keeps state for, since a
// program may use each tag only once.
const maxEnvelopes = 1 << 14

// senderState returns the sender's state of an envelope, such as its queued RTRs (ready-to-receive
// messages), and creates it if needed, which may evict others.
func (e *Engine) senderState(envelope Envelope) *senderState {
	s := e.senders[envelope]
	if s != nil {
		return s
	}
	if len(e.senders) >= e.evictAt {
		e.evictSenders()
	}
	s = &senderState{eagerSent: e.evicted} // the state of this envelope may have been evicted
	e.senders[envelope] = s
	return s
}

// evictSenders drops the state of each envelope without unmatched sends, RTRs, unconfirmed StopRTRs
// and sends without RTSAck. It is then unknown whether RTRs of these envelopes are still valid, so from then on new
// states start as after an eager send (eagerSent): they use no RTR before an RTS with StopRTR. The
// next eviction is when the number of states has doubled.
func (e *Engine) evictSenders() {
	maps.DeleteFunc(e.senders, func(_ Envelope, s *senderState) bool {
		return s.firstUnmatched == nil && s.rtrs.len() == 0 && !s.stopUnconfirmed && s.withoutRTSAck == 0
	})
	e.evicted = true
	e.evictAt = max(e.maxEnvelopes, 2*len(e.senders))
}

// earlyProgress processes received messages, so that the calling send or receive sees them.
func (e *Engine) earlyProgress() {
	e.Stats.EarlyProgress++
	e.transport.Progress()
}

// sendSpeculative writes to the buffer of the first queued RTR (ready-to-receive message), which
// the receiver sent before it knew of this message, or sends an RTS. It makes progress first,
// because an RTR may have arrived, unless too few RTRs were of use.
func (e *Engine) sendSpeculative(r *Request) {
	s := e.senderState(r.envelope())
	if !e.cfg.NoEarlyProgress && !s.usage.tooFewRTRsUsed {
		e.earlyProgress()
		if r.state == stateDone { // the peer was lost
			return
		}
		s = e.senderState(r.envelope()) // an arrived message may have evicted s
	}
	if !s.stopped && !s.eagerSent && s.rtrs.len() > 0 {
		e.useRTR(r, s)
		return
	}
	if err := e.register(r, len(r.Buf)); err != nil { // before any state changes
		e.fail(r, err)
		return
	}
	flags := e.rtrFlags(r, s)
	s.addUnmatched(r)
	e.sendRTS(r, flags)
}

// rtrFlags returns the flag with which the RTS of a send asks the receiver to stop or to resume
// RTRs (ready-to-receive messages), or 0. While RTRs are stopped because too few were used, the RTS
// asks for no RTSAck, which would cost time and only tell what the Done tells, too. RTRs resume only
// after the receiver has confirmed the stop, and Done has arrived for all sends without RTSAck: a
// new RTR could otherwise not be assigned. No RTR is queued: a send uses a queued one instead of an
// RTS, and an eager send drops all.
func (e *Engine) rtrFlags(r *Request, s *senderState) wire.Flags {
	switch {
	case !s.stopped && (s.eagerSent || s.usage.tooFewRTRsUsed):
		s.stopped, s.stopUnconfirmed, r.sentStopRTR = true, true, true
		return wire.StopRTR
	case s.stopped && s.usage.tooFewRTRsUsed:
		r.noRTSAck = true
		s.withoutRTSAck++
		return wire.NoRTSAck
	case s.stopped && !s.stopUnconfirmed && s.withoutRTSAck == 0:
		s.stopped = false
		return wire.ResumeRTR
	}
	return 0
}

// addUnmatched appends a send to the list of unmatched sends.
func (s *senderState) addUnmatched(r *Request) {
	if s.firstUnmatched == nil {
		s.firstUnmatched = r
	} else {
		s.lastUnmatched.nextUnmatched = r
	}
	s.lastUnmatched = r
}

// removeUnmatched removes a send from the list of unmatched sends, because its receive is known.
func (s *senderState) removeUnmatched(r *Request) {
	if r.recvKnown {
		return
	}
	r.recvKnown = true
	var prev *Request
	for q := s.firstUnmatched; q != nil; prev, q = q, q.nextUnmatched {
		if q != r {
			continue
		}
		if prev == nil {
			s.firstUnmatched = r.nextUnmatched
		} else {
			prev.nextUnmatched = r.nextUnmatched
		}
		if s.lastUnmatched == r {
			s.lastUnmatched = prev
		}
		r.nextUnmatched = nil
		return
	}
}

// useRTR writes a send's data to the receive buffer of the first RTR (ready-to-receive message). It
// first sends an RTRAck: otherwise the receiver would match the next RTS with that receive.
func (e *Engine) useRTR(r *Request, s *senderState) {
	if err := e.register(r, len(r.Buf)); err != nil {
		e.fail(r, err)
		return
	}
	rtr := s.rtrs.pop()
	s.usage.used++
	e.Stats.RTRsUsed++
	e.sendControl(r.Peer, &wire.Header{Kind: wire.RTRAck, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Recv: rtr.Recv})
	if r.state != stateDone { // sending may detect the loss of the peer
		e.write(r, &rtr)
	}
}

// recordEagerSend notes an eager send, unless the receiver was told to send no RTRs
// (ready-to-receive messages). It drops the queued RTRs: one of them may be of the receive that
// matches this send, and cannot be told from those of later receives.
func (e *Engine) recordEagerSend(envelope Envelope) {
	s := e.senderState(envelope)
	if !s.stopped {
		s.eagerSent = true
		e.dropRTRs(s)
	}
}

// dropRTRs drops the queued RTRs of an envelope.
func (e *Engine) dropRTRs(s *senderState) {
	e.Stats.RTRsDropped += uint64(s.rtrs.len())
	s.rtrs.clear()
}

// handleRTR handles the RTR (ready-to-receive message) of a receive. If the RTS of an unmatched
// send has crossed it, the receiver reads the data, and the RTR only shows that the send has a
// receive. After an eager send, or after RTRs were stopped, it is dropped. Else it is queued for a
// later send.
func (e *Engine) handleRTR(peer int, h *wire.Header) error {
	if h.Flags&wire.Advertised != 0 {
		e.handleAdvertisement(peer, h)
		return nil
	}
	s := e.senderState(Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	e.Stats.RTRsReceived++
	s.usage.received++
	switch {
	case s.firstUnmatched != nil:
		s.removeUnmatched(s.firstUnmatched)
		e.Stats.RTRsDropped++
		e.Stats.RTRsCrossed++
	case s.eagerSent || s.stopped:
		e.Stats.RTRsDropped++
	default:
		s.rtrs.push(h)
	}
	e.adapt(s)
	return nil
}

// adapt runs at the sender. If cfg.Adaptive is set, it asks for no more RTRs (ready-to-receive
// messages) after a sample of which too few were used. It asks for them again after a sample of
// sends of which enough would have used an RTR, as the receivers' replies tell.
func (e *Engine) adapt(s *senderState) {
	u := &s.usage
	if !e.cfg.Adaptive {
		return
	}
	// Queued RTRs may still be used; the others were used or dropped.
	if decided := u.received - s.rtrs.len(); !u.tooFewRTRsUsed && decided >= e.cfg.Sample {
		if float64(u.used) < e.cfg.Usage*float64(decided) {
			u.tooFewRTRsUsed = true
			u.sends, u.wouldHaveUsedRTR = 0, 0 // count from now on
			e.Stats.SpeculationStopped++
			e.Stats.recordStop(u.used, decided)
		}
		u.received, u.used = s.rtrs.len(), 0
	}
	if u.tooFewRTRsUsed && u.sends >= e.cfg.Sample {
		if float64(u.wouldHaveUsedRTR) >= e.cfg.Usage*float64(u.sends) {
			u.tooFewRTRsUsed = false
			e.Stats.SpeculationResumed++
			e.Stats.recordResume(u.wouldHaveUsedRTR, u.sends)
		}
		u.sends, u.wouldHaveUsedRTR = 0, 0
	}
}

// handleRTSAck handles the reply of a receiver that matched an RTS without having sent an RTR
// (ready to receive).
func (e *Engine) handleRTSAck(r *Request, h *wire.Header) {
	s := e.senderState(r.envelope())
	s.removeUnmatched(r)
	e.countSend(r, s, h)
	e.confirmRTRStop(r, s)
	e.adapt(s)
}

// countSend counts a send whose receive has sent no RTR, and whether an RTR would have arrived in
// time: it would have if the receive was posted before this send started. h is the RTSAck or the
// Done. A sender that computed meanwhile sees it late, which makes wouldHaveUsedRTR too low.
func (e *Engine) countSend(r *Request, s *senderState, h *wire.Header) {
	s.usage.sends++
	if time.Duration(h.PostedFor) >= e.transport.Now()-r.startedAt {
		s.usage.wouldHaveUsedRTR++
	}
}

// handleReadDone handles the end of the receiver's read of a send: the receiver has matched it, and
// has seen its flag StopRTR. If its RTS had NoRTSAck, the Done counts as the RTSAck would have.
func (e *Engine) handleReadDone(r *Request, h *wire.Header) {
	s := e.senderState(r.envelope())
	s.removeUnmatched(r)
	e.confirmRTRStop(r, s)
	if r.noRTSAck {
		s.withoutRTSAck--
		e.countSend(r, s, h)
		e.adapt(s)
	}
}

// confirmRTRStop is called for a send that the receiver has answered. If its RTS had StopRTR, the
// receiver has seen it, and all RTRs from before have arrived and were dropped. Then later RTRs
// belong to later sends, and the function clears stopUnconfirmed and eagerSent.
func (e *Engine) confirmRTRStop(r *Request, s *senderState) {
	if r.sentStopRTR {
		r.sentStopRTR = false
		s.stopUnconfirmed, s.eagerSent = false, false
	}
}

// handleRevoke removes an RTR (ready-to-receive message) that the receiver revokes, and replies
// with Revoked. If a send has used the RTR, its RTRAck precedes the reply.
func (e *Engine) handleRevoke(peer int, h *wire.Header) error {
	if h.Flags&wire.Advertised != 0 {
		e.handleAdvertisementRevoked(peer, h)
		return nil
	}
	s := e.senderState(Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if s.rtrs.remove(h.Recv) {
		e.Stats.RTRsDropped++
	}
	e.sendControl(peer, &wire.Header{Kind: wire.Revoked, Recv: h.Recv})
	return nil
}

// rtrQueue is a FIFO of RTRs that no send has used. pop takes constant time, since a
// program may have ten thousand receives of an envelope posted.
type rtrQueue struct {
	all   []wire.Header
	first int // index of the first queued entry
}

func (q *rtrQueue) len() int { return len(q.all) - q.first }

// push appends a copy of h. It first moves the entries down if half of the slice is unused.
func (q *rtrQueue) push(h *wire.Header) {
	if q.first > len(q.all)/2 {
		q.all = q.all[:copy(q.all, q.all[q.first:])]
		q.first = 0
	}
	q.all = append(q.all, *h)
}

// pop returns the first entry; the queue must not be empty.
func (q *rtrQueue) pop() wire.Header {
	h := q.all[q.first]
	if q.first++; q.first == len(q.all) {
		q.clear()
	}
	return h
}

// remove removes the RTR of a receive and reports whether it was queued. Receives are
// mostly cancelled in order, so the search starts at the front.
func (q *rtrQueue) remove(recv uint32) bool {
	for i := q.first; i < len(q.all); i++ {
		if q.all[i].Recv == recv {
			copy(q.all[q.first+1:], q.all[q.first:i]) // overwrites i
			q.pop()                                   // the first entry, which is there twice
			return true
		}
	}
	return false
}

func (q *rtrQueue) clear() { q.all, q.first = q.all[:0], 0 }
