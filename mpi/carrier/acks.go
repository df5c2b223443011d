package carrier

import (
	"fmt"
	"slices"
	"time"
)

// Unreliable datagrams carry sequence numbers. Every packet acknowledges all received
// packets; an ack-only packet follows after AckEvery packets or AckDelay. The sender
// retransmits packets that are not acknowledged in time.

// scheduleAck notes a received packet that must be acknowledged.
func (c *Carrier) scheduleAck(p *peer) {
	if c.nicDeliversDatagrams() && !c.rails[0].completesBeforeDelivery() {
		return
	}
	p.packetsToAck++
	switch {
	case p.packetsToAck >= c.cfg.Datagrams.AckEvery:
		p.ackAt = c.Now()
	case p.ackAt == 0:
		p.ackAt = c.Now() + c.cfg.Datagrams.AckDelay
	}
	c.watchTimers(p)
}

func (c *Carrier) nicDeliversDatagrams() bool { return c.rails[0].dg == nil || c.rails[0].dg.reliable }

// handleAck frees the packets that the peer acknowledges: all before a sequence number.
func (c *Carrier) handleAck(p *peer, number uint32) {
	n := 0
	for n < len(p.unacked) && before(p.unacked[n].seq, number) {
		p.unacked[n].acked = true
		n++
	}
	if n == 0 {
		return
	}
	if len(p.toReroute) > 0 {
		p.toReroute = slices.DeleteFunc(p.toReroute, func(pkt *packet) bool { return pkt.acked })
	}
	for _, pkt := range p.unacked[:n] {
		c.freePacket(pkt)
	}
	p.unacked = slices.Delete(p.unacked, 0, n)
	p.retransmits, p.unackedFor, p.retransmitAt = 0, 0, 0
	if len(p.unacked) > 0 && c.datagrams(p) != nil {
		p.retransmitAt = c.Now() + c.cfg.Datagrams.Timeout
		c.watchTimers(p)
	}
}

// watchTimers adds a peer to those whose timers runTimers checks.
func (c *Carrier) watchTimers(p *peer) {
	if !p.timersWatched {
		p.timersWatched = true
		c.timedPeers = append(c.timedPeers, p)
	}
}

// nextTimer returns the time of the next acknowledgement or retransmission that is due.
func (c *Carrier) nextTimer() (at time.Duration, ok bool) {
	for _, p := range c.timedPeers {
		for _, t := range [...]time.Duration{p.ackAt, p.retransmitAt} {
			if t != 0 && (!ok || t < at) {
				at, ok = t, true
			}
		}
	}
	return at, ok
}

// runTimers sends the retransmissions and acknowledgements that are due.
func (c *Carrier) runTimers() {
	if len(c.timedPeers) == 0 {
		return
	}
	now := c.Now()
	visit(&c.timedPeers, &c.spareTimedPeers, func(p *peer) {
		if p.retransmitAt != 0 && p.retransmitAt <= now {
			c.retransmit(p)
		}
		if p.ackAt != 0 && p.ackAt <= now {
			p.ackAt = now + c.cfg.Datagrams.AckDelay // retry if it cannot be sent now
			c.sendAckOnly(p, nil)
		}
		if p.timersWatched = false; p.lost == nil && (p.ackAt != 0 || p.retransmitAt != 0) {
			c.watchTimers(p)
		}
	})
}

// maxRetransmitBatch is how many packets are retransmitted at a time.
const maxRetransmitBatch = 16

func (c *Carrier) retransmit(p *peer) {
	if p.unacked[0].posted == 0 { // the packet was sent since the timer was set
		p.unackedFor += c.retransmitTimeout(p)
	}
	if p.retransmits++; p.unackedFor > c.cfg.PeerTimeout {
		c.losePeer(p, fmt.Errorf("no acknowledgement of packet %d after %d transmissions in at least %v", p.unacked[0].seq, p.retransmits, p.unackedFor))
		return
	}
	if p.retransmits > 1 { // the rail may have failed
		c.switchRail(p)
	}
	for _, pkt := range p.unacked[:min(maxRetransmitBatch, len(p.unacked))] {
		if pkt.posted > 0 || c.datagrams(p).freeWRs == 0 {
			continue // the first transmission has not completed
		}
		c.stats.Retransmitted++
		c.refreshPrefix(pkt)
		if err := c.postDatagram(pkt); err != nil {
			c.losePeer(p, err)
			return
		}
	}
	p.retransmitAt = c.Now() + c.retransmitTimeout(p)
}

// retransmitTimeout doubles with every retransmission, up to a second.
func (c *Carrier) retransmitTimeout(p *peer) time.Duration {
	const most = time.Second
	return min(most, c.cfg.Datagrams.Timeout<<min(p.retransmits, 16))
}

// refreshPrefix updates the acknowledgement in a packet before it is retransmitted. It
// returns no credits: the first transmission may have done so, or belonged to another
// connection.
func (c *Carrier) refreshPrefix(pkt *packet) {
	pre, _, _ := parsePrefix(pkt.buf.B) // this rank wrote it
	pre.ack, pre.credits, pre.slots = pkt.peer.nextIn, 0, 0
	pre.put(pkt.buf.B)
	pkt.peer.packetsToAck, pkt.peer.ackAt = 0, 0
}

// sendAckOnly sends pending acknowledgements and credits without a message.
func (c *Carrier) sendAckOnly(p *peer, conn *conn) {
	var via sender
	if conn == nil && c.rails[0].completesBeforeDelivery() {
		conn = p.anyOpen()
	}
	switch dg := c.datagrams(p); {
	case conn != nil && (conn.state == open || conn.state == closing && !conn.disconnecting) && conn.freeWRs > 0 && conn.canSendAck():
		via = conn
	case dg != nil && dg.freeWRs > 0:
		via = dg
	default:
		return // the next packet carries them
	}
	c.stats.AckOnly++
	c.sendOn(p, via, ackOnly, nil, nil)
}
