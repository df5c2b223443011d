package carrier

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// When a rail fails, its outstanding packets are sent again on another rail. They keep
// their sequence numbers, therefore the peer detects duplicates.

// needsPeerAcks reports whether the peer must acknowledge packets on connections, because
// a completion is no delivery and another rail may have to retransmit: iWARP with several rails.
func (r *rail) needsPeerAcks() bool {
	return len(r.c.rails) > 1 && r.dg == nil && r.IsIWARP()
}

// packetPosted notes that the NIC has a packet. Where a completion does not mean delivery,
// the peer must acknowledge it.
func (k *conn) packetPosted(pkt *packet) {
	if k.rail.needsPeerAcks() && pkt.numbered {
		if pkt.sentOn == nil { // the first transmission
			k.peer.out.unacked = append(k.peer.out.unacked, pkt)
		}
		pkt.sentAt = k.c.Now()
	}
	pkt.sentOn = k
	pkt.posted++
}

// queueReroute queues a packet for another rail or for datagrams; the peer drops a duplicate. If it
// is headerless (data alone), and so depends on its connection's order, the peer is lost instead.
func (c *Carrier) queueReroute(pkt *packet) {
	p := pkt.peer
	if pkt.HasImm { // headerless: it depends on the order of its connection
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
	if !k.rail.needsPeerAcks() {
		return
	}
	for _, pkt := range slices.Clone(k.peer.out.unacked) {
		if pkt.sentOn == k && pkt.posted == 0 && !slices.Contains(k.peer.toReroute, pkt) {
			k.c.queueReroute(pkt)
		}
	}
}

// rewriteUnnoticed queues again the writes of this connection whose notice (the message after the
// data) still waits in pendingNotices, and marks the notice as not sent. Without the notice the
// peer does not use the data, so writing it twice is harmless.
func (k *conn) rewriteUnnoticed() {
	for _, m := range k.pendingNotices {
		m.pendingParts, m.notice.sent = 1, false
		k.peer.queuedParts = append(k.peer.queuedParts, &transferPart{transfer: m, n: m.n, rail: k.rail.Num})
		k.c.markBusy(k.peer)
	}
	k.pendingNotices = nil
}

// retryOnOtherRail queues a failed part of a transfer for another rail. It returns false if there
// is none, and for an atomic, which may have been executed. A failed datagram also fails its rail.
func (c *Carrier) retryOnOtherRail(w work, part *transferPart) bool {
	p := part.transfer.peer
	if part.transfer.op == OpAtomic {
		return false
	}
	otherWorks := false
	if w.conn == nil { // a datagram
		otherWorks = c.failRail(p, w.dg.rail)
	} else {
		otherWorks = c.reachable(p)
	}
	if !otherWorks {
		return false
	}
	part.transfer.lastConn = nil // what was written on this rail may be lost, too: tryPost writes all data again
	p.queuedParts = append(p.queuedParts, part)
	c.markBusy(p)
	return true
}

// reachable reports whether at least one rail to the peer has not failed.
func (c *Carrier) reachable(p *peer) bool {
	for i := range c.rails {
		if k := p.conns[i]; k == nil && !p.railFailed[i] || k != nil && k.state != failed {
			return true
		}
	}
	return false
}

// connFailed handles the failure of a connection. Without another rail to it, the peer is lost.
func (k *conn) connFailed(cause error) {
	if k.state == failed || k.ended {
		return
	}
	if k.disconnection.noMorePackets { // the peer has closed its end
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

// checkRails looks, on iWARP with several rails, for connections with a packet that has been
// outstanding for longer than timeout. Such a connection fails if the peer was heard after the first
// half of that time and another connection to it is open; otherwise checkRails probes the peer on
// its other connections.
func (c *Carrier) checkRails(now time.Duration) {
	if !c.rails[0].needsPeerAcks() {
		return
	}
	timeout := 4 * c.cfg.KeepaliveIdle
	for p := range c.reachedPeers {
		for k := range p.eachConn {
			if k.state != open {
				continue
			}
			since, outstanding := k.waitingSince()
			since = max(since, c.keepalive.stalledUntil) // until then, this rank did not call Progress
			isOtherOpen := func(other *conn) bool { return other != k && other.isOpen() }
			switch {
			case !outstanding || now-since < timeout:
			case p.lastHeard > since+timeout/2 && p.findConn(isOtherOpen) != nil:
				k.connFailed(errRailStalled)
			default:
				for other := range p.eachConn {
					if other != k && other.canProbe() && p.lost == nil {
						c.sendOn(p, other, probe, nil, nil)
					}
				}
			}
		}
	}
}

// waitingSince returns since when the connection waits for a completion or an acknowledgement;
// false if nothing is outstanding. The first packet counts: acknowledgements are cumulative.
func (k *conn) waitingSince() (since time.Duration, ok bool) {
	if k.Outstanding() > 0 {
		return max(k.lastUsed, k.lastCompletion), true // each post and completion restarts the wait
	}
	if unacked := k.peer.out.unacked; len(unacked) > 0 && unacked[0].sentOn == k {
		return unacked[0].sentAt, true
	}
	return 0, false
}

// A rank that waits for a dead or unreachable peer gets no error from the network. Therefore it
// probes awaited peers that are silent. With RC and RD the peer's NIC acknowledges probes; other
// peers have PeerTimeout to answer.

var errGone = errors.New("the program of the peer has ended")

// keepalive has the times at which the rank checked its peers, and called Progress.
type keepalive struct {
	lastCheck    time.Duration // of silent peers
	lastProgress time.Duration // when Progress was last called
	stalledUntil time.Duration // when Progress was last called after a long pause
}

// checkSilentPeers looks for lost peers, at most once per KeepaliveIdle. Of the peers that the
// layer above (c.up) and the multicast groups wait for, one that has exited is lost, and one from which nothing has arrived
// for KeepaliveIdle is probed. checkRails looks for connections that have stalled.
func (c *Carrier) checkSilentPeers() {
	now := c.Now()
	if now < c.keepalive.lastCheck+c.cfg.KeepaliveIdle {
		return
	}
	c.keepalive.lastCheck = now
	c.checkRails(now)
	check := func(rank int) {
		if rank == c.env.Rank {
			return
		}
		p := c.peer(rank)
		switch {
		case p.lost != nil:
		case c.env.Control.Gone(rank):
			c.losePeer(p, errGone)
		case p.shm != nil: // on the same host: Gone reports its end
		case now-max(p.lastHeard, p.lastProbe) >= c.cfg.KeepaliveIdle:
			p.lastProbe = now // EachAwaitedPeer may visit p again
			c.probe(p)
		}
	}
	c.up.EachAwaitedPeer(check)
	for _, rank := range c.awaitedMembers() {
		check(rank)
	}
}

// probe sends a keepalive probe to a silent peer; from the second on, datagrams use the next rail.
// Where no NIC reports an unreachable peer, the peer is lost if it does not answer for PeerTimeout.
func (c *Carrier) probe(p *peer) {
	if p.probes++; p.probes > 1 {
		c.switchRail(p)
	}
	dg := c.datagrams(p)
	connected := false
	for k := range p.eachConn {
		if k.state == failed {
			continue
		}
		connected = true
		if k.canProbe() && !k.AwaitsCompletion() {
			c.sendOn(p, k, probe, nil, nil)
		}
		if p.lost != nil {
			return
		}
	}
	switch {
	case connected && dg != nil: // RC: the NIC reports an unreachable peer. iWARP has no datagrams, and TCP takes minutes.
		return
	case dg != nil && dg.Reliable: // RD: the NIC reports it, too
		if dg.Free() > 0 {
			c.sendOn(p, dg, probe, nil, nil)
		}
		return
	case dg != nil && dg.Free() > 0: // UD: nothing reports a lost datagram
		c.sendOn(p, dg, probe, nil, nil)
	case dg == nil && !connected: // iWARP: the peer may never answer the request to connect
		c.startMissingConns(p)
	}
	// Unanswered probes count, not time: this rank may not have been scheduled.
	if silent := time.Duration(p.probes-1) * c.cfg.KeepaliveIdle; silent > c.cfg.PeerTimeout {
		c.losePeer(p, fmt.Errorf("no answer to %d probes in at least %v (%s)", p.probes, silent.Round(time.Millisecond), p.describe()))
	}
}

// describe returns the queues and connections of a peer for an error message.
func (p *peer) describe() string {
	text := fmt.Sprintf("%d messages queued", len(p.queue))
	for k := range p.eachConn {
		text += fmt.Sprintf("; connection %d on rail %d is %v, with %d credits and %d requests outstanding",
			k.cm.generation, k.rail.Num, k.state, k.credits.available, k.Outstanding())
	}
	return text
}
