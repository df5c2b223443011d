package rd

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// pick returns the segment that is to leave next, or nil if none may.
func (p *Peer) pick(now mono.Time) *segment {
	switch {
	case p.oldest == nil:
		return nil
	case p.has(flagBusy):
		if !p.has(flagProbe) {
			return nil
		}
		return p.oldest
	case p.lost == 0 && p.unsent == nil:
		return nil
	case p.inFlight() >= p.limit():
		return nil
	case p.lost == 0 && !p.within(p.unsent):
		return nil
	}
	if p.paced(now) {
		return nil
	}
	if p.lost > 0 {
		return p.firstLost()
	}
	return p.unsent
}

// limit is how many packets may be under way. A start without proof is answered
// with a challenge, so more than one of it is wasted.
func (p *Peer) limit() int32 {
	if p.has(flagStarting) && !p.has(flagProved) {
		return 1
	}
	return int32(p.cwnd)
}

// within reports whether the receiver's window has room for s.
func (p *Peer) within(s *segment) bool {
	return s.seq.Sub(p.una) < int32(p.window)
}

// more reports whether another packet may leave behind the one that just left:
// if not, the peer is asked to acknowledge it at once.
func (p *Peer) more() bool {
	if p.has(flagBusy) || p.inFlight() >= p.limit() {
		return false
	}
	return p.lost > 0 || p.unsent != nil && p.within(p.unsent)
}

// firstLost returns the oldest segment that is held for lost.
func (p *Peer) firstLost() *segment {
	s := p.resend
	if s == nil {
		s = p.oldest
	}
	for ; s != nil && s != p.unsent; s = s.next {
		if s.lost {
			p.resend = s
			return s
		}
	}
	panic(fmt.Sprintf("rd: %d segments lost, none found: una %d, sendNext %d, next %d", p.lost, p.una, p.sendNext, p.next))
}

// depart notes that s is sent now.
func (p *Peer) depart(now mono.Time, s *segment) {
	l := p.layer
	if s == p.unsent {
		p.unsent = s.next
		p.sendNext++
	}
	if s.lost {
		s.lost = false
		p.lost--
	}
	p.set(flagProbe, false)
	p.sentNo++
	s.sentNo, s.sentAt = p.sentNo, microseconds(now)
	if s.tries++; s.tries == 0 {
		s.tries = 255 // more than 255 tries look like that many
	}
	l.Count.SentData++
	if s.tries > 1 {
		l.Count.SentAgain++
	}
	if p.timeoutAt == mono.Never || s == p.oldest {
		p.timeoutAt = now.Add(p.timeoutAfter())
	}
	p.spendPace(now)
}

// microseconds is the time as packets tell it.
func microseconds(now mono.Time) uint32 { return uint32(now / 1000) }

// timeoutAfter is how long to wait for an acknowledgement.
func (p *Peer) timeoutAfter() time.Duration {
	t := &p.layer.cfg.Timing
	if p.has(flagBusy) {
		return min(t.BusyMin<<min(p.backoff, 20), t.BusyMax)
	}
	d := t.FirstTimeout
	if p.srtt > 0 {
		d = max(time.Duration(p.srtt)+4*time.Duration(p.rttvar), t.MinTimeout)
	}
	return min(d<<min(p.backoff, 20), t.MaxTimeout)
}

// timeout handles that nothing was acknowledged for too long.
func (p *Peer) timeout(now mono.Time) {
	l := p.layer
	p.timeoutAt = mono.Never
	if p.outstanding() == 0 {
		return
	}
	p.countWait()
	if p.exhausted(now) {
		l.fail(p, ErrTimeout)
		return
	}
	p.backoff = min(p.backoff+1, 30)
	if p.has(flagBusy) {
		p.set(flagProbe, true)
	} else {
		l.Count.Timeouts++
		p.loseAll()
		p.reorder = firstReorder
		p.cutWindow(minWindow)
	}
	// Should the packet not leave, because the link is full, time goes on.
	p.timeoutAt = now.Add(p.timeoutAfter())
	l.activate(p)
}

// countWait adds the timeout that has expired to those that were waited for. It
// counts for no more than its length, however late the layer was called, and not at
// all if nothing was transmitted since the one before.
func (p *Peer) countWait() {
	if p.has(flagBusy) {
		p.busyFor += p.timeoutAfter()
	}
	if p.inFlight() > 0 && !p.has(flagProbe) {
		p.waited += p.timeoutAfter()
	}
}

// exhausted reports whether the sender gives up: enough attempts had their timeout,
// or the receiver may have forgotten the flow, and would deliver its segments twice.
func (p *Peer) exhausted(now mono.Time) bool {
	t := &p.layer.cfg.Timing
	return p.waited >= t.GiveUp || now.Sub(p.progress) >= max(t.Idle-t.Fresh, t.GiveUp)
}

// madeProgress notes that the peer took something, or said that it is busy.
func (p *Peer) madeProgress(now mono.Time) { p.progress, p.waited = now, 0 }

// loseAll holds all that is under way for lost.
func (p *Peer) loseAll() {
	for s := p.oldest; s != p.unsent; s = s.next {
		if !s.sacked && !s.lost {
			s.lost = true
			p.lost++
		}
	}
	p.resend = nil
}
