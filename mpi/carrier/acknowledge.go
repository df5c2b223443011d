package carrier

import (
	"fmt"
	"slices"
	"time"
)

// Datagrams are made reliable by numbers: the receiver says up to which it has all, in
// every packet that it sends, and in one of its own when there are many to speak of or
// nothing else was sent for a while. What is not spoken of in time is sent again.

// oweAck says that a packet came by datagram, of which its sender must learn.
func (c *Carrier) oweAck(p *peer) {
	if c.reliableDatagrams() && !c.rails[0].forgets() {
		return
	}
	p.taken++
	switch {
	case p.taken >= c.cfg.Datagrams.AckEvery:
		p.ackAt = c.Now()
	case p.ackAt == 0:
		p.ackAt = c.Now() + c.cfg.Datagrams.AckDelay
	}
	c.hasDeadline(p)
}

func (c *Carrier) reliableDatagrams() bool { return c.rails[0].dg == nil || c.rails[0].dg.reliable }

// acknowledged takes the peer's word that it has everything before a number.
func (c *Carrier) acknowledged(p *peer, number uint32) {
	n := 0
	for n < len(p.unacked) && before(p.unacked[n].seq, number) {
		p.unacked[n].acked = true
		n++
	}
	if n == 0 {
		return
	}
	if len(p.stranded) > 0 {
		p.stranded = slices.DeleteFunc(p.stranded, func(pkt *packet) bool { return pkt.acked })
	}
	for _, pkt := range p.unacked[:n] {
		c.dispose(pkt)
	}
	p.unacked = slices.Delete(p.unacked, 0, n)
	p.tries, p.unanswered, p.resendAt = 0, 0, 0
	if len(p.unacked) > 0 && c.datagrams(p) != nil {
		p.resendAt = c.Now() + c.cfg.Datagrams.Timeout
		c.hasDeadline(p)
	}
}

// hasDeadline has a peer be looked at when time has passed.
func (c *Carrier) hasDeadline(p *peer) {
	if !p.timed {
		p.timed = true
		c.timed = append(c.timed, p)
	}
}

// deadline is when something must be done without anything coming in.
func (c *Carrier) deadline() (at time.Duration, ok bool) {
	for _, p := range c.timed {
		for _, t := range [...]time.Duration{p.ackAt, p.resendAt} {
			if t != 0 && (!ok || t < at) {
				at, ok = t, true
			}
		}
	}
	return at, ok
}

// onTime does what is due.
func (c *Carrier) onTime() {
	if len(c.timed) == 0 {
		return
	}
	now := c.Now()
	visit(&c.timed, &c.spareTimed, func(p *peer) {
		if p.resendAt != 0 && p.resendAt <= now {
			c.resend(p)
		}
		if p.ackAt != 0 && p.ackAt <= now {
			p.ackAt = now + c.cfg.Datagrams.AckDelay // if it cannot leave now
			c.sendBare(p, nil)
		}
		if p.timed = false; p.lost == nil && (p.ackAt != 0 || p.resendAt != 0) {
			c.hasDeadline(p)
		}
	})
}

// resent is how many packets are sent again at once: what was lost is most likely a
// part of them.
const resent = 16

func (c *Carrier) resend(p *peer) {
	if p.unacked[0].posted == 0 { // else it has not left since the timer was set
		p.unanswered += c.resendAfter(p)
	}
	if p.tries++; p.unanswered > c.cfg.PeerTimeout {
		c.lose(p, fmt.Errorf("it does not answer: packet %d was sent %d times in at least %v", p.unacked[0].seq, p.tries, p.unanswered))
		return
	}
	if p.tries > 1 { // it may not be the packets that are lost
		c.tryAnotherRail(p)
	}
	for _, pkt := range p.unacked[:min(resent, len(p.unacked))] {
		if pkt.posted > 0 || c.datagrams(p).free == 0 {
			continue // it has not even left
		}
		c.stats.Retransmitted++
		c.restamp(pkt)
		if err := c.postDatagram(pkt); err != nil {
			c.lose(p, err)
			return
		}
	}
	p.resendAt = c.Now() + c.resendAfter(p)
}

// resendAfter is how long an acknowledgement is waited for. It doubles with every try.
func (c *Carrier) resendAfter(p *peer) time.Duration {
	const most = time.Second
	return min(most, c.cfg.Datagrams.Timeout<<min(p.tries, 16))
}

// restamp brings the acknowledgement in a packet up to date that is sent again. What it gave
// back may have come before, or was of another connection.
func (c *Carrier) restamp(pkt *packet) {
	pre, _, _ := parsePrefix(pkt.buf.b) // we wrote it
	pre.ack, pre.credits, pre.slots = pkt.peer.nextIn, 0, 0
	pre.put(pkt.buf.b)
	pkt.peer.taken, pkt.peer.ackAt = 0, 0
}

// sendBare tells a peer what it does not know yet of what came from it.
func (c *Carrier) sendBare(p *peer, by *conn) {
	var v via
	if by == nil && c.rails[0].forgets() {
		by = p.anyOpen()
	}
	switch dg := c.datagrams(p); {
	case by != nil && (by.state == open || by.state == closing && !by.leaving) && by.free > 0 && by.canSettle():
		v = by
	case dg != nil && dg.free > 0:
		v = dg
	default:
		return // it is said with the next packet
	}
	c.stats.AckOnly++
	c.leaveBy(p, v, bare, nil, nil)
}
