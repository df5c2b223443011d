package rd

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// receiveAck handles an acknowledgement of the flow to the peer.
func (p *Peer) receiveAck(now mono.Time, a *wire.Ack, flags wire.Flags) {
	l := p.layer
	known := p.outstanding() - a.SackSpan() // highest valid Next-una: the packets of Sack were sent, too
	if !p.has(flagSending) || a.Epoch != p.epoch || a.Next.Sub(p.una) > known {
		l.Count.DropAck++
		return
	}
	p.lastReceived = now
	if a.Next.Less(p.una) {
		return // an older acknowledgement, reordered
	}
	p.set(flagStarting, false)
	arrived := p.ackThrough(a) + p.applySack(a)
	if arrived > 0 {
		p.sampleRTT(time.Duration(microseconds(now)-a.Echo) * time.Microsecond)
		p.madeProgress(now)
		p.backoff = 0
		p.growWindow(arrived)
		p.rearm(now)
	}
	if flags.Has(wire.FlagDuplicate) && p.reorder < maxReorder {
		p.reorder *= 2 // a retransmission was spurious
	}
	if p.sacked > 0 {
		p.detectLosses()
	}
	if flags.Has(wire.FlagMarked) {
		p.reduceWindow()
	}
	p.updateWindow(now, a.Window)
	l.timers.SetIfEarlier(&p.timer, p.deadline())
}

// ackThrough releases all segments before a.Next, and returns how many of them were not known to
// have arrived.
func (p *Peer) ackThrough(a *wire.Ack) (arrived int) {
	l := p.layer
	for p.una != a.Next {
		s := p.oldest
		if p.markArrived(s, a.Echo) {
			arrived++
		}
		p.sacked-- // markArrived has counted it, now or before
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
		l.queueEvent(p)
	}
	return arrived
}

// applySack marks the segments of a.Sack as arrived, and returns how many of them are new.
func (p *Peer) applySack(a *wire.Ack) (arrived int) {
	beyond := a.SackSpan()
	if beyond == 0 {
		return 0
	}
	s := p.oldest.next // the first bit stands for Next+1: Next is missing
	for i := int32(0); i < beyond-1; i, s = i+1, s.next {
		if a.Sack[i/32]>>(i%32)&1 != 0 && p.markArrived(s, a.Echo) {
			arrived++
		}
	}
	return arrived
}

// markArrived marks s as arrived, and reports whether it was not marked before. It advances
// arrivedNo, the latest transmission known to have arrived, unless the echoed timestamp is older
// than the last transmission of s: then an earlier one arrived.
func (p *Peer) markArrived(s *segment, echo uint32) bool {
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

// detectLosses marks a segment as lost if a transmission at least p.reorder later has arrived. If
// fewer than p.reorder others are outstanding and none is unsent, their number is sufficient.
func (p *Peer) detectLosses() {
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
		p.reduceWindow()
	}
}

// updateWindow applies the receive window w of an acknowledgement. Window 0 means that the
// receiver is busy: it has no receive posted. If nothing is outstanding, it counts as 1: the
// next segment is a probe.
func (p *Peer) updateWindow(now mono.Time, w uint16) {
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
	p.madeProgress(now) // a busy peer is alive
	p.markAllLost()     // a busy receiver stores nothing that it has not acknowledged
	p.rearm(now)
}

// rearm restarts the retransmission timer if segments are outstanding, and stops it otherwise.
func (p *Peer) rearm(now mono.Time) {
	p.timeoutAt = mono.Never
	if p.outstanding() > 0 {
		p.timeoutAt = now.Add(p.timeoutAfter())
	}
}

// receiveChallenge stores the cookie of a challenge, which proves the address of this host,
// and retransmits with it.
func (p *Peer) receiveChallenge(now mono.Time, c *wire.Challenge) {
	l := p.layer
	if !p.has(flagStarting) || c.Epoch != p.epoch || p.outstanding() == 0 {
		l.Count.DropChallenge++
		return
	}
	if p.has(flagProved) && c.Incarnation != p.incarnation {
		// The incarnation that may have accepted segments is gone. A challenge by
		// the same incarnation means that it has accepted none: it would know the flow.
		l.fail(p, ErrRestarted)
		return
	}
	p.lastReceived = now
	if p.proof == c.Cookie {
		return // answered already
	}
	p.proof, p.incarnation = c.Cookie, c.Incarnation
	p.set(flagProved, true)
	p.backoff = 0
	p.markAllLost()
	p.rearm(now)
	l.activate(p)
	l.timers.SetIfEarlier(&p.timer, p.deadline())
}

// receiveRefusal fails a flow that the peer does not know. A flow that is still starting is
// retried, since the peer may not be ready yet.
func (p *Peer) receiveRefusal(r *wire.Refusal) {
	l := p.layer
	if !p.has(flagSending) || p.has(flagStarting) || r.Epoch != p.epoch || p.outstanding() == 0 {
		l.Count.DropRefusal++
		return
	}
	l.fail(p, ErrRefused)
}
