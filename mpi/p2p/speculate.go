package p2p

import (
	"maps"
	"time"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// speculation is what a sender knows of an envelope, whose Source is the receiver.
type senderState struct {
	// unheard are the sends with an RTS whose receives have not been heard of, in
	// their order: the next RTR is for the first of them.
	firstUnmatched, lastUnmatched *Request
	// rtrs are those that no send has been found for.
	rtrs rtrQueue

	// eager says that a message has gone eagerly, whose receive may have sent an
	// RTR, so that no RTR can be trusted any more.
	eagerSent bool
	// stopped says that the receiver was told by an RTS to send no RTRs, and to take
	// those that it has sent for unsent; stopping, that it has not answered, and that
	// some may still be on their way.
	stopped, stopping bool
	usage             usage
}

// usage is how many RTRs of an envelope came in time.
type usage struct {
	received, used int
	tooFewUsed     bool // too few: no more are wanted
	// While none come: how many sends there were, and how many of them would have
	// found one.
	sends, wouldUse int
}

// maxEnvelopes is how many envelopes either side remembers. Programs that never use
// a tag twice must not grow.
const maxEnvelopes = 1 << 14

func (e *Engine) senderState(envelope match.Envelope) *senderState {
	s := e.senders[envelope]
	if s != nil {
		return s
	}
	if len(e.senders) >= e.evictAt {
		e.evictSenders()
	}
	s = &senderState{eagerSent: e.evicted}
	e.senders[envelope] = s
	return s
}

// forgetEnvelopes drops those that nothing is under way for. What was sent eagerly
// is forgotten with them, and whom RTRs were stopped of, so that from now on everything
// is in doubt: an envelope that is met again begins by stopping its RTRs. As long as
// many must be kept, the next look is not before there are twice as many.
func (e *Engine) evictSenders() {
	maps.DeleteFunc(e.senders, func(_ match.Envelope, s *senderState) bool {
		return s.firstUnmatched == nil && s.rtrs.len() == 0 && !s.stopping
	})
	e.evicted = true
	e.evictAt = max(e.maxEnvelopes, 2*len(e.senders))
}

// early looks at what has come, so that what a call needs is not overlooked.
func (e *Engine) earlyProgress() {
	e.Stats.EarlyProgress++
	e.transport.Progress()
}

// sendSpeculatively writes to where an RTR says, or offers the message.
func (e *Engine) sendSpeculative(r *Request) {
	s := e.senderState(r.envelope())
	if !e.cfg.NoEarlyProgress && !s.usage.tooFewUsed {
		e.earlyProgress()
		if r.state == stateDone { // the peer was lost meanwhile
			return
		}
		s = e.senderState(r.envelope()) // what has come may have had it forgotten
	}
	if !s.stopped && !s.eagerSent && s.rtrs.len() > 0 {
		e.writeToRTR(r, s)
		return
	}
	if err := e.register(r, len(r.Buf)); err != nil { // before anything is said or noted
		e.fail(r, err)
		return
	}
	flags := e.rtrFlags(r, s)
	s.addUnmatched(r)
	e.sendRTS(r, flags)
}

// wishes is what the receiver is to be told about RTRs by a send's RTS.
func (e *Engine) rtrFlags(r *Request, s *senderState) wire.Flags {
	switch {
	case !s.stopped && (s.eagerSent || s.usage.tooFewUsed):
		e.dropRTRs(s)
		s.stopped, s.stopping, r.sentStopRTR = true, true, true
		return wire.StopRTR
	case s.stopped && !s.stopping && !s.usage.tooFewUsed:
		s.stopped = false
		return wire.ResumeRTR
	}
	return 0
}

// wait puts a send behind those whose receives have not been heard of.
func (s *senderState) addUnmatched(r *Request) {
	if s.firstUnmatched == nil {
		s.firstUnmatched = r
	} else {
		s.lastUnmatched.nextUnmatched = r
	}
	s.lastUnmatched = r
}

// hear takes a send out of those, if it is one.
func (s *senderState) removeUnmatched(r *Request) {
	if r.recvKnown {
		return
	}
	r.recvKnown = true
	var before *Request
	for q := s.firstUnmatched; q != nil; before, q = q, q.nextUnmatched {
		if q != r {
			continue
		}
		if before == nil {
			s.firstUnmatched = r.nextUnmatched
		} else {
			before.nextUnmatched = r.nextUnmatched
		}
		if s.lastUnmatched == r {
			s.lastUnmatched = before
		}
		r.nextUnmatched = nil
		return
	}
}

// answer writes a send's data to where the first RTR says. The receiver is told at
// once: it would otherwise take the next RTS for this receive's.
func (e *Engine) writeToRTR(r *Request, s *senderState) {
	if err := e.register(r, len(r.Buf)); err != nil {
		e.fail(r, err)
		return
	}
	rtr := s.rtrs.pop()
	s.usage.used++
	e.Stats.RTRsUsed++
	e.sendControl(r.Peer, &wire.Header{Kind: wire.RTRAck, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Recv: rtr.Recv})
	if r.state != stateDone { // the peer may be lost over it
		e.write(r, &rtr)
	}
}

// eagerSent notes that the receive of an eager message may have sent an RTR, which
// then is for nobody, and cannot be told from those that are for later sends. A
// receiver who was told to stop has sent none that counts.
func (e *Engine) noteEagerSend(envelope match.Envelope) {
	s := e.senderState(envelope)
	if !s.stopped {
		s.eagerSent = true
		e.dropRTRs(s)
	}
}

// discard drops the RTRs of an envelope.
func (e *Engine) dropRTRs(s *senderState) {
	e.Stats.RTRsDropped += uint64(s.rtrs.len())
	s.rtrs.clear()
}

// rtrCame takes the word of a receive that is posted. If the first send whose
// receive has not been heard of has sent an RTS, the two have crossed: the receiver
// reads, and the RTR has told us only that. Otherwise a send to come will use it.
func (e *Engine) handleRTR(peer int, h *wire.Header) error {
	s := e.senderState(match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	e.Stats.RTRsCame++
	s.usage.received++
	switch {
	case s.firstUnmatched != nil:
		s.removeUnmatched(s.firstUnmatched)
		e.Stats.RTRsDropped++
		e.Stats.Crossed++
	case s.eagerSent || s.stopped:
		e.Stats.RTRsDropped++
	default:
		s.rtrs.push(h)
	}
	e.adapt(s)
	return nil
}

// judge decides whether RTRs are worth their while.
func (e *Engine) adapt(s *senderState) {
	u := &s.usage
	if !e.cfg.Adaptive {
		return
	}
	// Those that still wait may yet be used.
	if settled := u.received - s.rtrs.len(); !u.tooFewUsed && settled >= e.cfg.Sample {
		if float64(u.used) < e.cfg.Usage*float64(settled) {
			u.tooFewUsed = true
			u.sends, u.wouldUse = 0, 0 // from now on
			e.Stats.SpeculationStopped++
		}
		u.received, u.used = s.rtrs.len(), 0
	}
	if u.tooFewUsed && u.sends >= e.cfg.Sample {
		if float64(u.wouldUse) >= e.cfg.Usage*float64(u.sends) {
			u.tooFewUsed = false
			e.Stats.SpeculationResumed++
		}
		u.sends, u.wouldUse = 0, 0
	}
}

// rtsAcked takes the word of a receiver who has met our RTS without an RTR.
func (e *Engine) handleRTSAck(r *Request, h *wire.Header) {
	s := e.senderState(r.envelope())
	s.removeUnmatched(r)
	// An RTR of a receive that waited longer than we have would have come first. Where we
	// hear of it late, having computed, that is not seen: RTRs are resumed too late then,
	// not too soon.
	s.usage.sends++
	if time.Duration(h.PostedFor) >= e.transport.Now()-r.startedAt {
		s.usage.wouldUse++
	}
	e.rtrStopAcked(r, s)
	e.adapt(s)
}

// read takes the end of a send whose data the receiver has read.
func (e *Engine) rtsRead(r *Request) {
	s := e.senderState(r.envelope())
	s.removeUnmatched(r)
	e.rtrStopAcked(r, s)
}

// drained notes that the receiver has heard our wish for no more RTRs: what it sent
// before has come, and has been dropped.
func (e *Engine) rtrStopAcked(r *Request, s *senderState) {
	if r.sentStopRTR {
		r.sentStopRTR = false
		s.stopping, s.eagerSent = false, false
	}
}

// revokeCame takes back an RTR. If a send has used it, its RTRAck is on its way.
func (e *Engine) handleRevoke(peer int, h *wire.Header) error {
	s := e.senderState(match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if s.rtrs.remove(h.Recv) {
		e.Stats.RTRsDropped++
	}
	e.sendControl(peer, &wire.Header{Kind: wire.Revoked, Recv: h.Recv})
	return nil
}
