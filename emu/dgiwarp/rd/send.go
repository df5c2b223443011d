package rd

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// nextSegment returns the segment to send next: the oldest as a probe of a busy peer, else the first
// lost, else the first unsent; nil if windows or pacing allow none.
func (p *Peer) nextSegment(now mono.Time) *segment {
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
	case p.inFlight() >= p.maxInFlight():
		return nil
	case p.lost == 0 && !p.inWindow(p.unsent):
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

// maxInFlight returns how many packets may be in flight: the congestion window, or one packet at
// the start of a flow without a proof, which is answered by a challenge.
func (p *Peer) maxInFlight() int32 {
	if p.has(flagStarting) && !p.has(flagProved) {
		return 1
	}
	return int32(p.cwnd)
}

// inWindow reports whether the receive window has room for s.
func (p *Peer) inWindow(s *segment) bool {
	return s.seq.Sub(p.una) < int32(p.window)
}

// canSendMore reports whether another packet may follow now. If not, the last packet requests
// an immediate acknowledgement.
func (p *Peer) canSendMore() bool {
	if p.has(flagBusy) || p.inFlight() >= p.maxInFlight() {
		return false
	}
	return p.lost > 0 || p.unsent != nil && p.inWindow(p.unsent)
}

// firstLost returns the oldest lost segment.
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

// markSent records a transmission of s.
func (p *Peer) markSent(now mono.Time, s *segment) {
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
		s.tries = 255 // saturates
	}
	l.Count.SentData++
	if s.tries > 1 {
		l.Count.SentAgain++
	}
	if p.timeoutAt == mono.Never || s == p.oldest {
		p.timeoutAt = now.Add(p.timeoutAfter())
	}
	p.advancePace(now)
}

// microseconds returns a time as the timestamp of a packet.
func microseconds(now mono.Time) uint32 { return uint32(now / 1000) }

// timeoutAfter returns the retransmission timeout, or the probe interval of a busy peer.
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

// timeout handles the expiry of the retransmission timer or probe interval.
func (p *Peer) timeout(now mono.Time) {
	l := p.layer
	p.timeoutAt = mono.Never
	if p.outstanding() == 0 {
		return
	}
	p.countWait()
	if p.shouldGiveUp(now) {
		l.fail(p, ErrTimeout)
		return
	}
	p.backoff = min(p.backoff+1, 30)
	if p.has(flagBusy) {
		p.set(flagProbe, true)
	} else {
		l.Count.Timeouts++
		p.markAllLost()
		p.reorder = firstReorder
		p.setWindow(minWindow)
	}
	// Should the packet not leave, because the link is full, time goes on.
	p.timeoutAt = now.Add(p.timeoutAfter())
	l.activate(p)
}

// countWait adds the expired timeout to the time waited for the peer: its nominal length, even
// if Tick was late, and only if a packet was transmitted since the previous timeout.
func (p *Peer) countWait() {
	if p.has(flagBusy) {
		p.busyFor += p.timeoutAfter()
	}
	if p.inFlight() > 0 && !p.has(flagProbe) {
		p.waited += p.timeoutAfter()
	}
}

// shouldGiveUp reports whether the flow must fail: the timeouts add up to GiveUp, or the
// receiver may have removed the flow and would deliver segments twice.
func (p *Peer) shouldGiveUp(now mono.Time) bool {
	t := &p.layer.cfg.Timing
	return p.waited >= t.GiveUp || now.Sub(p.progress) >= max(t.Idle-t.ReuseWithin, t.GiveUp)
}

// madeProgress restarts the wait for the peer, after an acknowledgement or busy report.
func (p *Peer) madeProgress(now mono.Time) { p.progress, p.waited = now, 0 }

// markAllLost marks all segments in flight as lost.
func (p *Peer) markAllLost() {
	for s := p.oldest; s != p.unsent; s = s.next {
		if !s.sacked && !s.lost {
			s.lost = true
			p.lost++
		}
	}
	p.resend = nil
}
