package carrier

import (
	"fmt"
	"slices"
	"time"
)

// scheduleAck notes a received packet that must be acknowledged. It does nothing where the NICs
// deliver reliably: with reliable datagrams, and without datagrams (iWARP) if there is one rail.
func (c *Carrier) scheduleAck(p *peer) {
	if r := c.rails[0]; (r.dg == nil || r.dg.Reliable) && !r.needsPeerAcks() {
		return
	}
	p.acks.Received(c.Now())
	c.lists.timed.add(p)
}

// handleAck frees the packets that the peer acknowledges, all before the sequence number ack, and
// restarts the retransmission timer of datagrams for the others.
func (c *Carrier) handleAck(p *peer, ack uint32) {
	acked := p.out.Acknowledge(ack)
	if acked == nil {
		return
	}
	for _, pkt := range acked {
		pkt.acked = true
	}
	if len(p.toReroute) > 0 {
		p.toReroute = slices.DeleteFunc(p.toReroute, func(pkt *packet) bool { return pkt.acked })
	}
	for _, pkt := range acked {
		c.freePacket(pkt)
	}
	if c.datagrams(p) != nil {
		c.startRetransmitTimer(p)
	}
}

// startRetransmitTimer starts a peer's retransmission timer, unless it runs or all is acknowledged.
func (c *Carrier) startRetransmitTimer(p *peer) {
	if p.out.StartTimer(c.Now()) {
		c.lists.timed.add(p)
	}
}

// nextTimer returns the time of the next acknowledgement, retransmission or request that is due. ok is
// false if there is none.
func (c *Carrier) nextTimer() (at time.Duration, ok bool) {
	for _, p := range c.lists.timed.peers {
		for _, t := range [...]time.Duration{p.acks.expiry, p.out.expiry} {
			if t != 0 && (!ok || t < at) {
				at, ok = t, true
			}
		}
	}
	for _, r := range c.groups.timed {
		if r.expiry != 0 && (!ok || r.expiry < at) {
			at, ok = r.expiry, true
		}
	}
	return at, ok
}

// runTimers sends the retransmissions and acknowledgements that are due.
func (c *Carrier) runTimers() {
	if len(c.lists.timed.peers) == 0 {
		return
	}
	now := c.Now()
	c.lists.timed.visit(func(p *peer) (stays bool) {
		if at := p.out.expiry; at != 0 && at <= now {
			c.retransmit(p)
		}
		if at := p.acks.expiry; at != 0 && at <= now {
			p.acks.expiry = now + p.acks.Delay // retry if it cannot be sent now
			c.sendAckOnly(p, nil)              // by datagram, or on any open connection
		}
		return p.lost == nil && (p.acks.expiry != 0 || p.out.expiry != 0)
	})
}

// maxRetransmitBatch is how many packets are retransmitted at a time.
const maxRetransmitBatch = 16

// retransmit retransmits the first unacknowledged packets after a timeout. A peer that has
// acknowledged nothing for PeerTimeout is lost.
func (c *Carrier) retransmit(p *peer) {
	unacked := p.out.unacked
	transmitted := unacked[0].posted == 0 // the NIC has completed it
	retransmits, silent := p.out.CountExpiry(transmitted)
	if silent > c.cfg.PeerTimeout {
		c.losePeer(p, fmt.Errorf("no acknowledgement of packet %d after %d transmissions in at least %v", unacked[0].seq, retransmits, silent))
		return
	}
	if retransmits > 1 { // the rail may have failed
		c.switchRail(p)
	}
	for _, pkt := range unacked[:min(maxRetransmitBatch, len(unacked))] {
		if pkt.posted > 0 || c.datagrams(p).Free() == 0 {
			continue // the NIC has not completed the last transmission, or has no room
		}
		c.stats.Retransmitted++
		c.refreshPrefix(pkt)
		if err := c.postDatagram(pkt); err != nil {
			c.losePeer(p, err)
			return
		}
	}
	p.out.expiry = c.Now() + p.out.retransmitTimeout()
}

// refreshPrefix updates the acknowledgement in a packet before it is retransmitted. It sets the
// credits in the packet to 0: the peer may have them from the first transmission, which may also
// have been for another connection.
func (c *Carrier) refreshPrefix(pkt *packet) {
	pre, _, _ := parsePrefix(pkt.Buf.B) // this rank wrote the prefix: it is valid
	pre.ack, pre.credits, pre.slots = pkt.peer.in.next, 0, 0
	pre.put(pkt.Buf.B)
	pkt.peer.acks.Acknowledged()
}

// sendAckOnly sends acknowledgements and credits without a message: on conn if it has room, else by
// datagram. On iWARP, without datagrams, a nil conn stands for any open connection. If there is no
// room, the next packet carries them.
func (c *Carrier) sendAckOnly(p *peer, conn *conn) {
	var via sender
	if conn == nil && c.rails[0].needsPeerAcks() { // iWARP, which has no datagrams
		conn = p.anyOpen()
	}
	switch dg := c.datagrams(p); {
	case conn != nil && (conn.state == open || conn.state == closing && !conn.disconnection.noMorePackets) && conn.Free() > 0 && conn.canSendAck():
		via = conn
	case dg != nil && dg.Free() > 0:
		via = dg
	default:
		return
	}
	c.stats.AckOnly++
	c.sendOn(p, via, ackOnly, nil, nil)
}
