package rd

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// nextSegment returns the segment to send next: the oldest as a probe of a busy peer (one without a
// posted receive), else the first lost, else the first unsent; nil if windows or pacing allow none.
func (p *Peer) nextSegment(now mono.Time) *segment {
	switch {
	case p.send.oldest == nil:
		return nil
	case p.has(flagBusy):
		if !p.has(flagProbe) {
			return nil
		}
		return p.send.oldest
	case p.send.lost == 0 && p.send.unsent == nil:
		return nil
	case p.send.inFlight() >= p.maxInFlight():
		return nil
	case p.send.lost == 0 && !p.inWindow(p.send.unsent):
		return nil
	case p.paced(now):
		return nil
	case p.send.lost > 0:
		return p.send.firstLost()
	}
	return p.send.unsent
}

// maxInFlight returns how many packets may be in flight: the congestion window, or 1 at the start
// of a flow without a proof of this host's address, since the peer answers by a challenge.
func (p *Peer) maxInFlight() int32 {
	if p.has(flagStarting) && !p.has(flagProved) {
		return 1
	}
	return int32(p.send.cc.cwnd)
}

// inWindow reports whether the receive window has room for s.
func (p *Peer) inWindow(s *segment) bool {
	return s.seq.Sub(p.send.una) < int32(p.send.window)
}

// canSendMore reports whether another packet may follow now. If not, the last packet requests
// an immediate acknowledgement.
func (p *Peer) canSendMore() bool {
	if p.has(flagBusy) || p.send.inFlight() >= p.maxInFlight() {
		return false
	}
	return p.send.lost > 0 || p.send.unsent != nil && p.inWindow(p.send.unsent)
}

// firstLost returns the oldest lost segment, at or after f.lostSearchStart. It panics without one.
func (f *sendFlow) firstLost() *segment {
	for s := cmp.Or(f.lostSearchStart, f.oldest); s != nil && s != f.unsent; s = s.next {
		if s.lost {
			f.lostSearchStart = s
			return s
		}
	}
	panic(fmt.Sprintf("rd: %d segments lost, none found: una %d, sent %d, next %d", f.lost, f.una, f.sent, f.next))
}

// markSent records a transmission of s, sets the retransmission timer, and paces the next packet.
func (p *Peer) markSent(now mono.Time, s *segment) {
	f, l := &p.send, p.layer
	if s == f.unsent {
		f.unsent = s.next
		f.sent++
	}
	if s.lost {
		s.lost = false
		f.lost--
	}
	p.set(flagProbe, false)
	f.loss.sent++ // transmissions are numbered
	s.sentNo, s.sentAt = f.loss.sent, microseconds(now)
	if s.tries++; s.tries == 0 {
		s.tries = 255 // saturates
	}
	l.Count.SentData++
	if s.tries > 1 {
		l.Count.SentAgain++
	}
	if f.rto.at == mono.Never || s == f.oldest {
		f.rto.at = now.Add(p.timeoutAfter())
	}
	f.cc.paceAt = max(f.cc.paceAt, now).Add(f.cc.paceInterval())
}

// microseconds returns a time as the timestamp of a packet.
func microseconds(now mono.Time) uint32 { return uint32(now / 1000) }

// timeoutAfter returns the retransmission timeout, or the interval between probes of a busy peer.
// Each expiry in a row doubles it.
func (p *Peer) timeoutAfter() time.Duration {
	t, cc, backoff := &p.layer.cfg.Timing, &p.send.cc, p.send.rto.backoff
	if p.has(flagBusy) {
		return min(t.BusyMin<<backoff, t.BusyMax)
	}
	d := t.FirstTimeout
	if cc.srtt > 0 {
		d = max(time.Duration(cc.srtt)+4*time.Duration(cc.rttvar), t.MinTimeout)
	}
	return min(d<<backoff, t.MaxTimeout)
}

// timeout handles the expiry of the retransmission timer or probe interval. The flow fails if the
// timeouts add up to GiveUp, or if the last progress is so long ago that the receiver may have
// removed the flow: a new flow there would deliver the retransmitted segments twice.
func (p *Peer) timeout(now mono.Time) {
	l, rto := p.layer, &p.send.rto
	rto.at = mono.Never
	if p.send.outstanding() == 0 {
		return
	}
	p.countWait()
	t := &l.cfg.Timing
	if rto.waited >= t.GiveUp || now.Sub(rto.progress) >= t.Idle-t.ReuseWithin {
		l.fail(p, ErrTimeout)
		return
	}
	rto.backoff = min(rto.backoff+1, 20) // 20: the shifts of timeoutAfter do not overflow
	if p.has(flagBusy) {
		p.set(flagProbe, true)
	} else {
		l.Count.Timeouts++
		p.send.markAllLost()
		p.send.loss.reorder = firstReorder
		p.send.setWindow(minWindow)
	}
	// Output sets the timer only when it sends a packet; a full link may prevent that.
	rto.at = now.Add(p.timeoutAfter())
	l.activate(p)
}

// countWait adds the nominal length of the expired timeout to the time waited for the peer, if a
// packet was sent since the previous timeout, and to the time for which the peer is busy, if it is.
func (p *Peer) countWait() {
	if p.has(flagBusy) {
		p.send.rto.busyFor += p.timeoutAfter()
	}
	if p.send.inFlight() > 0 && !p.has(flagProbe) {
		p.send.rto.waited += p.timeoutAfter()
	}
}

// madeProgress restarts the wait for the peer: at an acknowledgement, busy report or first segment.
func (t *retransmitTimer) madeProgress(now mono.Time) { t.progress, t.waited = now, 0 }

// markAllLost marks all segments in flight as lost.
func (f *sendFlow) markAllLost() {
	for s := f.oldest; s != f.unsent; s = s.next {
		if !s.sacked && !s.lost {
			s.lost = true
			f.lost++
		}
	}
	f.lostSearchStart = nil
}
