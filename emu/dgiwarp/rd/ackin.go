package rd

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// takeAck handles an acknowledgement of the flow to the peer.
func (p *Peer) takeAck(now mono.Time, a *wire.Ack, flags wire.Flags) {
	l := p.layer
	known := p.outstanding() - a.SackSpan() // no overflow, whatever Next is
	if !p.has(flagSending) || a.Epoch != p.epoch || a.Next.Sub(p.una) > known {
		l.Count.DropAck++
		return
	}
	p.heard = now
	if a.Next.Less(p.una) {
		return // an old one, overtaken
	}
	p.set(flagStarting, false)
	arrived := p.takeNext(a) + p.takeSack(a)
	if arrived > 0 {
		p.sampleRTT(time.Duration(microseconds(now)-a.Echo) * time.Microsecond)
		p.madeProgress(now)
		p.backoff = 0
		p.grow(arrived)
		p.timeoutAt = mono.Never
		if p.outstanding() > 0 {
			p.timeoutAt = now.Add(p.timeoutAfter())
		}
	}
	if flags.Has(wire.FlagDuplicate) && p.reorder < maxReorder {
		p.reorder *= 2 // something was sent again for nothing
	}
	if p.sacked > 0 {
		p.seekLosses()
	}
	if flags.Has(wire.FlagMarked) {
		p.cut()
	}
	p.takeWindow(now, a.Window)
	l.timers.sooner(p)
}

// takeNext lets go of all segments before a.Next, and returns how many of them
// were not known to have arrived.
func (p *Peer) takeNext(a *wire.Ack) (arrived int) {
	l := p.layer
	for p.una != a.Next {
		s := p.oldest
		if p.arrive(s, a.Echo) {
			arrived++
		}
		p.sacked--
		if p.resend == s {
			p.resend = nil
		}
		p.oldest = l.segments.release(s)
		p.una++
		p.acked++
	}
	if p.oldest == nil {
		p.newest = nil
	}
	if p.acked > 0 {
		l.notice(p)
	}
	return arrived
}

// takeSack marks what arrived behind a gap, and returns how much of it is news.
func (p *Peer) takeSack(a *wire.Ack) (arrived int) {
	beyond := a.SackSpan()
	if beyond == 0 {
		return 0
	}
	s := p.oldest.next
	for i := int32(0); i < beyond-1; i, s = i+1, s.next {
		if a.Sack[i/32]>>(i%32)&1 != 0 && p.arrive(s, a.Echo) {
			arrived++
		}
	}
	return arrived
}

// arrive notes that s has arrived, and reports whether that is news. Which of
// several transmissions it was is told by the echo: if that is older than the
// latest, an earlier one made it.
func (p *Peer) arrive(s *segment, echo uint32) bool {
	if s.sacked {
		return false
	}
	s.sacked = true
	p.sacked++
	if s.lost {
		s.lost = false
		p.lost--
	}
	if (s.tries == 1 || int32(echo-s.sentAt) >= 0) && int32(s.sentNo-p.arrivedNo) > 0 {
		p.arrivedNo = s.sentNo
	}
	return true
}

// seekLosses holds for lost what was overtaken by enough later transmissions. If
// there is nothing more to send, and fewer than that are under way, all of them
// are enough.
func (p *Peer) seekLosses() {
	found, enough := false, int32(p.reorder)
	if p.unsent == nil {
		enough = min(enough, max(p.outstanding()-1, 1))
	}
	for s := p.oldest; s != p.unsent; s = s.next {
		if !s.sacked && !s.lost && int32(p.arrivedNo-s.sentNo) >= enough {
			s.lost = true
			p.lost++
			p.layer.Count.LossesSeen++
			found = true
		}
	}
	if found {
		p.resend = nil
		p.cut()
	}
}

// takeWindow obeys what the receiver says of its room.
func (p *Peer) takeWindow(now mono.Time, w uint16) {
	l := p.layer
	if w > 0 || p.outstanding() == 0 {
		p.window = max(1, min(w, wire.Window))
		if p.has(flagBusy) {
			p.set(flagBusy|flagProbe, false)
			p.backoff = 0
			p.rearm(now)
		}
		l.activate(p)
		return
	}
	if !p.has(flagBusy) {
		p.set(flagBusy, true)
		p.backoff, p.busyFor = 0, 0
	}
	if limit := l.cfg.Timing.BusyLimit; limit > 0 && p.busyFor >= limit {
		l.fail(p, ErrBusy)
		return
	}
	p.madeProgress(now) // busy, but alive
	p.loseAll()         // a busy receiver has kept nothing that it did not acknowledge
	p.rearm(now)
}

func (p *Peer) rearm(now mono.Time) {
	p.timeoutAt = mono.Never
	if p.outstanding() > 0 {
		p.timeoutAt = now.Add(p.timeoutAfter())
	}
}

// takeChallenge proves to the peer that packets to this host's address reach it.
func (p *Peer) takeChallenge(now mono.Time, c *wire.Challenge) {
	l := p.layer
	if !p.has(flagStarting) || c.Epoch != p.epoch || p.outstanding() == 0 {
		l.Count.DropChallenge++
		return
	}
	if p.has(flagProved) && c.Incarnation != p.incarnation {
		// The one that could take segments is gone. A challenge by the same one
		// means that it took none: it would know the flow.
		l.fail(p, ErrRestarted)
		return
	}
	p.heard = now
	if p.proof == c.Cookie {
		return // answered already
	}
	p.proof, p.incarnation = c.Cookie, c.Incarnation
	p.set(flagProved, true)
	p.backoff = 0
	p.loseAll()
	p.rearm(now)
	l.activate(p)
	l.timers.sooner(p)
}

// takeRefusal ends a flow that the peer does not know. One that has not begun is
// tried again until its time is over: the peer may not be ready yet.
func (p *Peer) takeRefusal(r *wire.Refusal) {
	l := p.layer
	if !p.has(flagSending) || p.has(flagStarting) || r.Epoch != p.epoch || p.outstanding() == 0 {
		l.Count.DropRefusal++
		return
	}
	l.fail(p, ErrRefused)
}
