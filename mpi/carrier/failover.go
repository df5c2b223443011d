package carrier

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// When a rail fails, its outstanding packets are sent again on another rail. They keep
// their sequence numbers, therefore the peer detects duplicates.

// completesBeforeDelivery reports whether a completion does not mean delivery and another
// rail may have to send a packet again: iWARP with several rails.
func (r *rail) completesBeforeDelivery() bool {
	return len(r.c.rails) > 1 && r.dg == nil && r.LacksRNR()
}

// packetPosted notes that the NIC has a packet. Where a completion does not mean delivery,
// the peer must acknowledge it.
func (k *conn) packetPosted(pkt *packet) {
	if k.rail.completesBeforeDelivery() && pkt.numbered {
		if pkt.sentOn == nil {
			k.peer.out.unacked = append(k.peer.out.unacked, pkt)
		}
		pkt.sentAt = k.c.Now()
	}
	pkt.sentOn = k
	pkt.posted++
}

// queueReroute queues a packet for another rail or for datagrams. A peer that has received the
// packet already drops the duplicate.
func (c *Carrier) queueReroute(pkt *packet) {
	p := pkt.peer
	if pkt.HasImm { // it depends on the order of its connection
		c.losePeer(p, fmt.Errorf("packet %d could not be delivered", pkt.seq))
		c.drop(pkt)
		return
	}
	p.toReroute = append(p.toReroute, pkt)
	c.markBusy(p)
	c.reroute(p)
}

// reroute sends the packets of failed rails by a transport that has room.
func (c *Carrier) reroute(p *peer) {
	for len(p.toReroute) > 0 && p.lost == nil {
		pkt := p.toReroute[0]
		var via sender
		dg := c.datagrams(p)
		byDatagram := dg != nil && pkt.Len <= dg.MaxPacket
		if k := p.anyOpen(); k != nil && k.hasRoom() {
			via = k
		} else if byDatagram && dg.Free() > 0 {
			via = dg
		}
		switch {
		case via != nil:
			c.stats.Retransmitted++
			c.refreshPrefix(pkt)
			if err := via.transmit(pkt); err != nil {
				c.losePeer(p, err)
				return
			}
		case byDatagram:
			return // until the NIC has room
		case c.reachable(p):
			c.startMissingConns(p)
			return
		default:
			c.losePeer(p, fmt.Errorf("packet %d could not be delivered on any rail", pkt.seq))
			return
		}
		p.toReroute = p.toReroute[1:]
	}
}

// rerouteUnacked queues the unacknowledged packets of an ended connection for other rails.
// Packets that the NIC still has follow with their completions.
func (k *conn) rerouteUnacked() {
	if !k.rail.completesBeforeDelivery() {
		return
	}
	for _, pkt := range slices.Clone(k.peer.out.unacked) {
		if pkt.sentOn == k && pkt.posted == 0 && !slices.Contains(k.peer.toReroute, pkt) {
			k.c.queueReroute(pkt)
		}
	}
}

// rewriteUnnoticed queues the writes of this connection whose notice, the message after the data,
// was not sent. The peer does not know of the data yet, so writing it twice is harmless.
func (k *conn) rewriteUnnoticed() {
	for _, m := range k.pendingNotices {
		m.pendingParts, m.notice.sent = 1, false
		k.peer.queuedParts = append(k.peer.queuedParts, &transferPart{transfer: m, n: m.n, rail: k.rail.Num})
		k.c.markBusy(k.peer)
	}
	k.pendingNotices = nil
}

// retryOnOtherRail queues a failed part for another rail. It returns false if there is none, and
// for an atomic, which may have been executed.
func (c *Carrier) retryOnOtherRail(w work, part *transferPart) bool {
	p := part.transfer.peer
	switch {
	case part.transfer.op == OpAtomic:
		return false
	case w.conn == nil && !c.failRail(p, w.dg.rail), w.conn != nil && !c.reachable(p):
		return false
	}
	part.transfer.lastConn = nil // data written before may be lost as well
	p.queuedParts = append(p.queuedParts, part)
	c.markBusy(p)
	return true
}

// reachable reports whether a rail to the peer has not failed.
func (c *Carrier) reachable(p *peer) bool {
	for i := range c.rails {
		if k := p.conns[i]; k == nil && !p.railFailed[i] || k != nil && k.state != failed {
			return true
		}
	}
	return false
}

// connFailed handles the failure of a connection. If it is the last rail to its peer, the
// peer is lost.
func (k *conn) connFailed(cause error) {
	if k.state == failed || k.ended {
		return
	}
	if k.disconnection.lastPacket { // the peer has closed its end
		k.c.endConn(k)
		return
	}
	c, p := k.c, k.peer
	k.fail()
	if !c.reachable(p) {
		c.losePeer(p, cause)
		return
	}
	c.stats.RailsLost++
	k.rewriteUnnoticed()
	k.rerouteUnacked()
}

// TCP may retransmit for fifteen minutes before it gives up. With several rails a rank
// therefore probes a peer on the others: if the peer answers there and packets on this rail
// stay unacknowledged, the rail has failed.

var errRailStalled = errors.New("packets on this rail do not arrive, but the peer answers on another")

// checkRails handles connections with a packet that has been outstanding for too long. If the
// peer was heard on another connection meanwhile, the connection fails; else it probes the others.
func (c *Carrier) checkRails(now time.Duration) {
	if !c.rails[0].completesBeforeDelivery() {
		return
	}
	timeout := 4 * c.cfg.KeepaliveIdle
	for p := range c.reachedPeers {
		for k := range p.eachConn {
			if k.state != open {
				continue
			}
			since, outstanding := k.oldestOutstanding()
			since = max(since, c.keepalive.stalledUntil)
			isOtherOpen := func(other *conn) bool { return other != k && other.isOpen() }
			switch {
			case !outstanding || now-since < timeout:
			case p.lastHeard > since+timeout/2 && p.findConn(isOtherOpen) != nil:
				k.connFailed(errRailStalled)
			default:
				c.probeOtherRails(p, k)
			}
		}
	}
}

// oldestOutstanding returns since when the connection waits for a completion or an
// acknowledgement; false if nothing is outstanding. Acknowledgements are cumulative,
// therefore only the first packet counts.
func (k *conn) oldestOutstanding() (since time.Duration, ok bool) {
	if k.Outstanding() > 0 {
		return max(k.lastUsed, k.lastCompletion), true
	}
	if unacked := k.peer.out.unacked; len(unacked) > 0 && unacked[0].sentOn == k {
		return unacked[0].sentAt, true
	}
	return 0, false
}

// probeOtherRails sends a probe on all open connections except one.
func (c *Carrier) probeOtherRails(p *peer, except *conn) {
	for k := range p.eachConn {
		if k != except && k.canProbe() && p.lost == nil {
			c.sendOn(p, k, probe, nil, nil)
		}
	}
}
