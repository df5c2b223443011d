package rd

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// receiveAck handles an acknowledgement of the flow to the peer: it releases segments, updates the
// RTT, the timer, the congestion and the receive window, and detects losses. It drops an
// acknowledgement of another flow, or of packets that were not sent.
func (p *Peer) receiveAck(now mono.Time, a *wire.Ack, flags wire.Flags) {
	l := p.layer
	maxAcked := p.send.outstanding() - a.SackSpan() // the packets from Next to the end of Sack are outstanding, too
	if !p.has(flagSending) || a.Epoch != p.send.epoch || a.Next.Sub(p.send.una) > maxAcked {
		l.Count.DropAck++
		return
	}
	p.lastReceived = now
	if a.Next.Less(p.send.una) {
		return // an older acknowledgement, reordered
	}
	p.set(flagStarting, false)
	arrived := p.ackThrough(a) + p.send.applySack(a)
	if arrived > 0 {
		p.send.cc.sampleRTT(time.Duration(microseconds(now)-a.Echo) * time.Microsecond)
		p.send.rto.madeProgress(now)
		p.send.rto.backoff = 0
		p.send.cc.grow(arrived)
		p.rearm(now)
	}
	if flags.Has(wire.FlagDuplicate) && p.send.loss.reorder < maxReorder {
		p.send.loss.reorder *= 2 // a retransmission was spurious
	}
	if p.send.mayHaveLosses() {
		p.detectLosses()
	}
	if flags.Has(wire.FlagMarked) {
		p.send.reduceWindow()
	}
	p.updateWindow(now, a.Window)
	l.timers.SetIfEarlier(&p.timer, p.deadline())
}

// ackThrough processes the cumulative acknowledgement of a: it releases the segments before a.Next, queues an
// EventAcked, and returns how many of them no earlier SACK had acknowledged.
func (p *Peer) ackThrough(a *wire.Ack) (arrived int) {
	f, l := &p.send, p.layer
	for f.una != a.Next {
		s := f.oldest
		if f.markArrived(s, a.Echo) {
			arrived++
		}
		f.sacked-- // markArrived has counted it, now or before
		if f.lostSearchStart == s {
			f.lostSearchStart = nil
		}
		f.oldest = l.segments.release(s)
		f.una++
		p.acked++
	}
	if f.oldest == nil {
		f.newest = nil
	}
	if p.acked > 0 {
		l.queueEvent(p)
	}
	return arrived
}

// applySack marks the segments of a.Sack as arrived, and returns how many of them are new.
func (f *sendFlow) applySack(a *wire.Ack) (arrived int) {
	span := a.SackSpan() // packets from Next to the last one in Sack
	if span == 0 {
		return 0
	}
	s := f.oldest.next // the first bit stands for Next+1: Next is missing
	for i := int32(0); i < span-1; i, s = i+1, s.next {
		if a.Sack[i/32]>>(i%32)&1 != 0 && f.markArrived(s, a.Echo) {
			arrived++
		}
	}
	return arrived
}

// markArrived marks s as arrived, and reports whether it was not marked before. It advances
// loss.arrived, the latest transmission known to have arrived, unless the echoed timestamp shows
// that an earlier transmission of s arrived, not its last.
func (f *sendFlow) markArrived(s *segment, echo uint32) bool {
	if s.sacked {
		return false
	}
	s.sacked = true
	f.sacked++
	if s.lost {
		s.lost = false
		f.lost--
	}
	if (s.tries == 1 || int32(echo-s.sentAt) >= 0) && int32(s.sentNo-f.loss.arrived) > 0 {
		f.loss.arrived = s.sentNo
	}
	return true
}

// mayHaveLosses reports whether a segment may have been sent before one that has arrived. Without SACKs and
// retransmissions, segments arrive in the order in which they were sent.
func (f *sendFlow) mayHaveLosses() bool {
	s := f.oldest
	return f.sacked > 0 || f.outstanding() > 0 && (s.tries > 1 || int32(f.loss.arrived-s.sentNo) > 0)
}

// detectLosses marks a segment as lost if a segment that was sent at least loss.reorder
// transmissions later has arrived. If nothing is left to send, loss.reorder later transmissions may
// never come: then as many later ones as there are other outstanding segments suffice. If it marks
// any, it reduces the congestion window.
func (p *Peer) detectLosses() {
	f := &p.send
	found, enough := false, int32(f.loss.reorder)
	if f.unsent == nil && !p.has(flagMore) {
		enough = min(enough, max(f.outstanding()-1, 1))
	}
	for s := f.oldest; s != f.unsent; s = s.next {
		if !s.sacked && !s.lost && int32(f.loss.arrived-s.sentNo) >= enough {
			s.lost = true
			f.lost++
			p.layer.Count.LossesSeen++
			found = true
		}
	}
	if found {
		f.lostSearchStart = nil
		f.reduceWindow()
	}
}

// updateWindow applies the receive window w of an acknowledgement. Window 0 means that the receiver
// is busy: it has no receive posted. The flow fails if that lasts for BusyLimit. If nothing is
// outstanding, window 0 counts as 1: the next segment is a probe.
func (p *Peer) updateWindow(now mono.Time, w uint16) {
	l := p.layer
	if w > 0 || p.send.outstanding() == 0 {
		p.send.window = max(1, min(w, wire.Window))
		if p.has(flagBusy) {
			p.set(flagBusy|flagProbe, false)
			p.send.rto.backoff = 0
			p.rearm(now)
		}
		l.activate(p)
		return
	}
	if !p.has(flagBusy) {
		p.set(flagBusy, true)
		p.send.rto.backoff, p.send.rto.busyFor = 0, 0
	}
	if limit := l.cfg.Timing.BusyLimit; limit > 0 && p.send.rto.busyFor >= limit {
		l.fail(p, ErrBusy)
		return
	}
	p.send.rto.madeProgress(now) // a busy peer is alive
	p.send.markAllLost()         // a busy receiver stores nothing that it has not acknowledged
	p.rearm(now)
}

// rearm restarts the retransmission timer if segments are outstanding, and stops it otherwise.
func (p *Peer) rearm(now mono.Time) {
	p.send.rto.at = mono.Never
	if p.send.outstanding() > 0 {
		p.send.rto.at = now.Add(p.timeoutAfter())
	}
}

// receiveChallenge stores the cookie of a challenge, which proves the address of this host, and
// retransmits with it. The flow fails if the peer has restarted and may have accepted segments.
func (p *Peer) receiveChallenge(now mono.Time, c *wire.Challenge) {
	l := p.layer
	if !p.has(flagStarting) || c.Epoch != p.send.epoch || p.send.outstanding() == 0 {
		l.Count.DropChallenge++
		return
	}
	if p.has(flagProved) && c.Incarnation != p.incarnation {
		// The same incarnation has accepted no segment: it would not challenge a flow that it has.
		l.fail(p, ErrRestarted)
		return
	}
	p.lastReceived = now
	if p.send.proof == c.Cookie {
		return // answered already
	}
	p.send.proof, p.incarnation = c.Cookie, c.Incarnation
	p.set(flagProved, true)
	p.send.rto.backoff = 0
	p.send.markAllLost()
	p.rearm(now)
	l.activate(p)
	l.timers.SetIfEarlier(&p.timer, p.deadline())
}

// receiveRefusal fails the flow that the peer refuses. It ignores refusals of another flow, of one
// with nothing outstanding, and of one that is still starting: the peer may not be ready yet.
func (p *Peer) receiveRefusal(r *wire.Refusal) {
	l := p.layer
	if !p.has(flagSending) || p.has(flagStarting) || r.Epoch != p.send.epoch || p.send.outstanding() == 0 {
		l.Count.DropRefusal++
		return
	}
	l.fail(p, ErrRefused)
}
