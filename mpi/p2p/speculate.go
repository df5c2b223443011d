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
	rtrs []wire.Header

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
	if len(e.speculated) >= maxEnvelopes {
		e.forgetEnvelopes()
	}
	s = &speculation{eager: e.forgotten}
	e.speculated[envelope] = s
	return s
}

// forgetEnvelopes drops those that nothing is under way for. What was sent eagerly
// is forgotten with them, so that from now on everything may have been.
func (e *Engine) forgetEnvelopes() {
	maps.DeleteFunc(e.speculated, func(_ match.Envelope, s *speculation) bool {
		return s.unheard == nil && len(s.rtrs) == 0 && !s.stopped
	})
	e.forgotten = true
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
	}
	var flags wire.Flags
	switch {
	case !s.stopped && !s.eager && len(s.rtrs) > 0:
		e.answer(r, s)
		return
	case !s.stopped && (s.eager || s.usage.useless):
		e.discard(s)
		flags, r.stops = wire.StopRTR, true
		s.stopped, s.stopping, r.deaf = true, true, true
	case s.stopped && !s.stopping && !s.usage.useless:
		flags, s.stopped = wire.ResumeRTR, false
	case s.stopped:
		r.deaf = true
	}
	if !r.deaf {
		s.wait(r)
	}
	e.offer(r, flags)
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

// hear takes a send out of those.
func (s *speculation) hear(r *Request) {
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
	rtr := s.rtrs[0]
	s.rtrs = s.rtrs[:copy(s.rtrs, s.rtrs[1:])]
	s.usage.used++
	e.Stats.RTRsUsed++
	e.word(r.Peer, &wire.Header{Kind: wire.RTRAck, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Recv: rtr.Recv})
	e.write(r, &rtr)
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
	e.Stats.RTRsDropped += uint64(len(s.rtrs))
	s.rtrs = s.rtrs[:0]
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
		s.rtrs = append(s.rtrs, *h)
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
	if settled := u.came - len(s.rtrs); !u.useless && settled >= e.cfg.Sample {
		if float64(u.used) < e.cfg.Usage*float64(settled) {
			u.useless = true
			e.Stats.SpeculationStopped++
		}
		u.came, u.used = len(s.rtrs), 0
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
	if !r.heard && !r.deaf {
		s.hear(r)
	}
	// An RTR of a receive that waited longer than we have would have come first.
	s.usage.sends++
	if time.Duration(h.Early) >= e.fabric.Now()-r.since {
		s.usage.would++
	}
	e.drained(r, s)
	e.judge(s)
}

// read takes the end of a send whose data the receiver has read.
func (e *Engine) read(r *Request) {
	s := e.speculation(r.envelope())
	if !r.heard && !r.deaf {
		s.hear(r)
	}
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

// hush is what a receiver knows of an envelope.
type hush struct {
	stopped      bool // the sender wants no RTRs
	mispredicted int  // receives in a row with an RTR for what came eagerly
}

// hush returns what is known of an envelope, or begins to know it. A table that is
// full takes no more: receives of envelopes that are not in it do not speak.
func (e *Engine) hush(envelope match.Envelope) *hush {
	h := e.hushed[envelope]
	if h == nil {
		h = new(hush)
		if len(e.hushed) >= maxEnvelopes {
			maps.DeleteFunc(e.hushed, func(_ match.Envelope, h *hush) bool { return !h.stopped })
		}
		if len(e.hushed) < maxEnvelopes {
			e.hushed[envelope] = h
		}
	}
	return h
}

// heed does what an RTS wants. A sender who wants no RTRs uses none of those that
// were sent, so that receives which are still posted have sent none in effect: they
// keep those behind them from sending theirs, and answer an RTS.
func (e *Engine) heed(envelope match.Envelope, flags wire.Flags) {
	if h := e.hushed[envelope]; h != nil {
		h.mispredicted = 0
	}
	switch {
	case flags&wire.StopRTR != 0:
		e.hush(envelope).stopped = true
		for n := e.posted.Last(envelope); n != nil && n.Value.speaks; n = e.posted.Before(n) {
			n.Value.speaks = false
		}
	case flags&wire.ResumeRTR != 0:
		delete(e.hushed, envelope)
	}
}

// mispredicted notes an RTR for what came eagerly.
func (e *Engine) mispredicted(envelope match.Envelope) {
	e.Stats.Mispredicted++
	e.hush(envelope).mispredicted++
}

// maySpeak reports whether a receive that is about to be posted may send an RTR. It
// may not where its sender is not known or wants none; nor where too many were for
// nothing; nor behind a receive that its message might go to and that has sent none:
// the sender would take it for that one's.
func (e *Engine) maySpeak(envelope match.Envelope) bool {
	if envelope.Source == match.Any || envelope.Tag == match.Any {
		return false
	}
	h := e.hushed[envelope]
	if h == nil && len(e.hushed) >= maxEnvelopes || h != nil && (h.stopped || h.mispredicted >= e.cfg.MaxMispredicted) {
		return false
	}
	// Of those with just this envelope the last tells for all: it would not have
	// spoken behind one that has not.
	last := e.posted.Last(envelope)
	return !e.posted.Wild(envelope) && (last == nil || last.Value.speaks)
}

// speak sends a receive's RTR.
func (e *Engine) speak(r *Request) {
	if e.register(r, len(r.Buf)) != nil {
		return // its sender can start; there may be room by then
	}
	r.speaks = true
	e.word(r.Peer, &wire.Header{
		Kind: wire.RTR, Context: r.Context, Tag: r.Tag, Size: uint64(len(r.Buf)), Recv: r.name, Memory: r.region.Memory(),
	})
}

// rtrAckCame takes the word of a sender who writes to where an RTR of ours says. As
// any message it goes to the first receive for it, which must be the one.
func (e *Engine) rtrAckCame(peer int, h *wire.Header) error {
	n := e.posted.First(match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	if n == nil || n.Value.name != h.Recv || !n.Value.speaks { // what was hushed is not written to
		return confused(peer, h, "it is for another receive than the first")
	}
	r := n.Value
	e.posted.Remove(n)
	r.state, r.Source, r.GotTag, r.Size = moving, peer, h.Tag, int(h.Size)
	return nil
}

// revokeCame takes back an RTR. If a send has used it, its RTRAck is on its way.
func (e *Engine) revokeCame(peer int, h *wire.Header) error {
	s := e.speculation(match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag})
	for i := range s.rtrs {
		if s.rtrs[i].Recv == h.Recv {
			s.rtrs = append(s.rtrs[:i], s.rtrs[i+1:]...)
			e.Stats.RTRsDropped++
			break
		}
	}
	e.word(peer, &wire.Header{Kind: wire.Revoked, Recv: h.Recv})
	return nil
}

// revokedCame ends the cancelling of a receive, unless its message was faster.
func (e *Engine) revokedCame(peer int, h *wire.Header) error {
	r := e.names.get(h.Recv)
	if r == nil {
		return nil
	}
	if r.Peer != peer || !r.revoking {
		return confused(peer, h, "nothing was revoked")
	}
	if r.state == posted {
		e.cancelled(r)
	}
	return nil
}
