package p2p

import (
	"maps"
	"time"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// speculation is what a sender knows of an envelope, whose Source is the receiver.
type speculation struct {
	// unheard are the sends with an RTS whose receives have not been heard of, in
	// their order: the next RTR is for the first of them.
	unheard, lastUnheard *Request
	// rtrs are those that no send has been found for.
	rtrs rtrs

	// eager says that a message has gone eagerly, whose receive may have sent an
	// RTR, so that no RTR can be trusted any more.
	eager bool
	// stopped says that the receiver was told by an RTS to send no RTRs, and to take
	// those that it has sent for unsent; stopping, that it has not answered, and that
	// some may still be on their way.
	stopped, stopping bool
	usage             usage
}

// usage is how many RTRs of an envelope came in time.
type usage struct {
	came, used int
	useless    bool // too few: no more are wanted
	// While none come: how many sends there were, and how many of them would have
	// found one.
	sends, would int
}

// maxEnvelopes is how many envelopes either side remembers. Programs that never use
// a tag twice must not grow.
const maxEnvelopes = 1 << 14

func (e *Engine) speculation(envelope match.Envelope) *speculation {
	s := e.speculated[envelope]
	if s != nil {
		return s
	}
	if len(e.speculated) >= e.forgetAt {
		e.forgetEnvelopes()
	}
	s = &speculation{eager: e.forgotten}
	e.speculated[envelope] = s
	return s
}

// forgetEnvelopes drops those that nothing is under way for. What was sent eagerly
// is forgotten with them, and whom RTRs were stopped of, so that from now on everything
// is in doubt: an envelope that is met again begins by stopping its RTRs. As long as
// many must be kept, the next look is not before there are twice as many.
func (e *Engine) forgetEnvelopes() {
	maps.DeleteFunc(e.speculated, func(_ match.Envelope, s *speculation) bool {
		return s.unheard == nil && s.rtrs.len() == 0 && !s.stopping
	})
	e.forgotten = true
	e.forgetAt = max(e.maxEnvelopes, 2*len(e.speculated))
}

// early looks at what has come, so that what a call needs is not overlooked.
func (e *Engine) early() {
	e.Stats.EarlyProgress++
	e.fabric.Progress()
}

// sendSpeculatively writes to where an RTR says, or offers the message.
func (e *Engine) sendSpeculatively(r *Request) {
	s := e.speculation(r.envelope())
	if !e.cfg.NoEarlyProgress && !s.usage.useless {
		e.early()
		if r.state == done { // the peer was lost meanwhile
			return
		}
		s = e.speculation(r.envelope()) // what has come may have had it forgotten
	}
	if !s.stopped && !s.eager && s.rtrs.len() > 0 {
		e.answer(r, s)
		return
	}
	if err := e.register(r, len(r.Buf)); err != nil { // before anything is said or noted
		e.fail(r, err)
		return
	}
	flags := e.wishes(r, s)
	s.wait(r)
	e.offer(r, flags)
}

// wishes is what the receiver is to be told about RTRs by a send's RTS.
func (e *Engine) wishes(r *Request, s *speculation) wire.Flags {
	switch {
	case !s.stopped && (s.eager || s.usage.useless):
		e.discard(s)
		s.stopped, s.stopping, r.stops = true, true, true
		return wire.StopRTR
	case s.stopped && !s.stopping && !s.usage.useless:
		s.stopped = false
		return wire.ResumeRTR
	}
	return 0
}

// wait puts a send behind those whose receives have not been heard of.
func (s *speculation) wait(r *Request) {
	if s.unheard == nil {
		s.unheard = r
	} else {
		s.lastUnheard.follows = r
	}
	s.lastUnheard = r
}

// hear takes a send out of those, if it is one.
func (s *speculation) hear(r *Request) {
	if r.heard {
		return
	}
	r.heard = true
	var before *Request
	for q := s.unheard; q != nil; before, q = q, q.follows {
		if q != r {
			continue
		}
		if before == nil {
			s.unheard = r.follows
		} else {
			before.follows = r.follows
		}
		if s.lastUnheard == r {
			s.lastUnheard = before
		}
		r.follows = nil
		return
	}
}

// answer writes a send's data to where the first RTR says. The receiver is told at
// once: it would otherwise take the next RTS for this receive's.
func (e *Engine) answer(r *Request, s *speculation) {
	if err := e.register(r, len(r.Buf)); err != nil {
		e.fail(r, err)
		return
	}
	rtr := s.rtrs.take()
	s.usage.used++
	e.Stats.RTRsUsed++
	e.word(r.Peer, &wire.Header{Kind: wire.RTRAck, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Recv: rtr.Recv})
	if r.state != done { // the peer may be lost over it
		e.write(r, &rtr)
	}
}

// eagerSent notes that the receive of an eager message may have sent an RTR, which
// then is for nobody, and cannot be told from those that are for later sends. A
// receiver who was told to stop has sent none that counts.
func (e *Engine) eagerSent(envelope match.Envelope) {
	s := e.speculation(envelope)
	if !s.stopped {
		s.eager = true
		e.discard(s)
	}
}

// discard drops the RTRs of an envelope.
func (e *Engine) discard(s *speculation) {
	e.Stats.RTRsDropped += uint64(s.rtrs.len())
	s.rtrs.clear()
}

// rtrCame takes the word of a receive that is posted. If the first send whose
// receive has not been heard of has sent an RTS, the two have crossed: the receiver
// reads, and the RTR has told us only that. Otherwise a send to come will use it.
func (e *Engine) rtrCame(peer int, h *wire.Header) error {
	s := e.speculation(match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	e.Stats.RTRsCame++
	s.usage.came++
	switch {
	case s.unheard != nil:
		s.hear(s.unheard)
		e.Stats.RTRsDropped++
		e.Stats.Crossed++
	case s.eager || s.stopped:
		e.Stats.RTRsDropped++
	default:
		s.rtrs.add(h)
	}
	e.judge(s)
	return nil
}

// judge decides whether RTRs are worth their while.
func (e *Engine) judge(s *speculation) {
	u := &s.usage
	if !e.cfg.Adaptive {
		return
	}
	// Those that still wait may yet be used.
	if settled := u.came - s.rtrs.len(); !u.useless && settled >= e.cfg.Sample {
		if float64(u.used) < e.cfg.Usage*float64(settled) {
			u.useless = true
			u.sends, u.would = 0, 0 // from now on
			e.Stats.SpeculationStopped++
		}
		u.came, u.used = s.rtrs.len(), 0
	}
	if u.useless && u.sends >= e.cfg.Sample {
		if float64(u.would) >= e.cfg.Usage*float64(u.sends) {
			u.useless = false
			e.Stats.SpeculationResumed++
		}
		u.sends, u.would = 0, 0
	}
}

// rtsAcked takes the word of a receiver who has met our RTS without an RTR.
func (e *Engine) rtsAcked(r *Request, h *wire.Header) {
	s := e.speculation(r.envelope())
	s.hear(r)
	// An RTR of a receive that waited longer than we have would have come first. Where we
	// hear of it late, having computed, that is not seen: RTRs are resumed too late then,
	// not too soon.
	s.usage.sends++
	if time.Duration(h.PostedFor) >= e.fabric.Now()-r.since {
		s.usage.would++
	}
	e.drained(r, s)
	e.judge(s)
}

// read takes the end of a send whose data the receiver has read.
func (e *Engine) read(r *Request) {
	s := e.speculation(r.envelope())
	s.hear(r)
	e.drained(r, s)
}

// drained notes that the receiver has heard our wish for no more RTRs: what it sent
// before has come, and has been dropped.
func (e *Engine) drained(r *Request, s *speculation) {
	if r.stops {
		r.stops = false
		s.stopping, s.eager = false, false
	}
}

// revokeCame takes back an RTR. If a send has used it, its RTRAck is on its way.
func (e *Engine) revokeCame(peer int, h *wire.Header) error {
	s := e.speculation(match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if s.rtrs.drop(h.Recv) {
		e.Stats.RTRsDropped++
	}
	e.word(peer, &wire.Header{Kind: wire.Revoked, Recv: h.Recv})
	return nil
}
