package sim

import "net/netip"

// forward sends pk to its destination, or a copy to each receiver of a multicast or broadcast;
// without a receiver it drops pk. The sender receives its own multicast if it has joined, as with
// IP_MULTICAST_LOOP.
func (n *Net) forward(pk *packet) {
	dst := pk.Dst.Addr()
	switch {
	case dst == limitedBroadcast:
		n.receivers = n.broadcastReceivers(n.receivers[:0], pk.from)
	case dst.IsMulticast():
		n.receivers = append(n.receivers[:0], n.groups[dst]...) // copied: a receiver may leave in its handler
	default:
		to := pk.from.lookUp(dst)
		if to == nil {
			pk.from.uplink.drop(pk, &pk.from.uplink.stats.Drops.NoRoute, "no-route")
			return
		}
		n.forwardTo(pk, to)
		return
	}
	if len(n.receivers) == 0 {
		pk.from.uplink.drop(pk, &pk.from.uplink.stats.Drops.NoRoute, "no-member")
		return
	}
	for _, to := range n.receivers {
		n.forwardTo(n.newPacket(&pk.Datagram, pk.from, nil), to)
	}
	n.releasePacket(pk)
}

// peer is a port with one of its addresses.
type peer struct {
	addr    netip.Addr
	port    *Port
	changes int // Net.addrChanges when it was looked up
}

// lookUp returns the port with an address, or nil. It keeps the last one, because packets of a port
// often have the destination of the packet before.
func (p *Port) lookUp(dst netip.Addr) *Port {
	n := p.net
	if last := &p.lastPeer; last.port == nil || last.addr != dst || last.changes != n.addrChanges {
		*last = peer{dst, n.byAddr[dst], n.addrChanges}
	}
	return p.lastPeer.port
}

// forwardTo sends pk from the sender's switch to a port.
func (n *Net) forwardTo(pk *packet, to *Port) {
	pk.to = to
	to.downlink.stats.In.count(pk.size)
	switch {
	case !n.reachable(pk.from, to):
		to.downlink.drop(pk, &to.downlink.stats.Drops.Partitioned, "partitioned")
	case pk.from.sw != to.sw:
		n.route(pk, pk.from.sw)
	default:
		n.egress(pk, to)
	}
}

// egress queues pk in the switch towards its port. A cable has no switch: pk, which has crossed the
// cable, passes the impairments and arrives.
func (n *Net) egress(pk *packet, to *Port) {
	switch d := &to.downlink; {
	case to.isDown:
		d.drop(pk, &d.stats.Drops.LinkDown, "link-down")
	case n.cfg.Cable && pk.size <= d.cfg.MTU:
		d.impair(pk)
	default:
		d.transmit(pk) // drops a packet that is too big, also on a cable
	}
}

// deliver puts a packet into the receive queue of its port, or drops it.
func (n *Net) deliver(pk *packet) {
	p := pk.to
	d := &p.downlink
	if p.closed {
		d.drop(pk, &d.stats.Drops.NoRoute, "closed")
		return
	}
	if p.rxQueueBytes+pk.size > p.cfg.Link.RxQueueBytes {
		d.drop(pk, &d.stats.Drops.ReceiveFull, "receive-full")
		return
	}
	d.stats.Delivered++
	d.stats.DeliveredBytes += uint64(pk.size)
	n.tracePacket(p.cfg.Name, "deliver", &pk.Datagram)
	if n.tap != nil {
		n.tap(n.w.now, p, In, &pk.Datagram)
	}
	p.rxQueue.Push(pk)
	p.rxQueueBytes += pk.size
	if !p.frozen {
		p.readable.call(n.w.now)
	}
}

// limitedBroadcast is the IPv4 limited broadcast address (RFC 919). IPv6 uses the all-nodes group.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// isGroup reports whether a is a multicast or broadcast address.
func isGroup(a netip.Addr) bool { return a.IsMulticast() || a == limitedBroadcast }

// broadcastReceivers appends the ports of the sender's broadcast domain, whether or not they joined
// 255.255.255.255. The sender receives its own broadcast only if it has joined, as a
// host loops it back only to sockets bound to that address.
func (n *Net) broadcastReceivers(to []*Port, sender *Port) []*Port {
	for _, p := range n.ports {
		switch {
		case p.closed || !n.sameDomain(sender.sw, p.sw):
		case p != sender || p.joins[limitedBroadcast] > 0:
			to = append(to, p)
		}
	}
	return to
}

// sameDomain reports whether no router is between two switches: they are in one broadcast domain.
func (n *Net) sameDomain(a, b *Switch) bool {
	if a == b {
		return true
	}
	if !n.routesValid {
		n.computeRoutes()
	}
	return a.domain == b.domain
}

// computeBroadcastDomains numbers the broadcast domains. A router and its ports are one domain.
func (n *Net) computeBroadcastDomains() {
	for _, s := range n.switches {
		s.domain = -1
	}
	for i, s := range n.switches {
		if s.domain < 0 {
			s.joinDomain(i)
		}
	}
}

// joinDomain adds s and the switches reachable without a router to a domain.
func (s *Switch) joinDomain(domain int) {
	s.domain = domain
	for _, trunk := range s.out {
		if !s.cfg.Routed && !trunk.to.cfg.Routed && trunk.to.domain < 0 {
			trunk.to.joinDomain(domain)
		}
	}
}
