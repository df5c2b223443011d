package sim

import "net/netip"

// limitedBroadcast is the IPv4 limited broadcast address (RFC 919). IPv6 hosts
// join the all-nodes group instead.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// isGroup reports whether a is a multicast or broadcast address.
func isGroup(a netip.Addr) bool { return a.IsMulticast() || a == limitedBroadcast }

// broadcastReceivers appends the ports of the sender's broadcast domain, joined
// or not. The sender receives its own broadcast only if it has joined, as a
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

// sameDomain reports whether two switches are in one broadcast domain, without
// a router on the path.
func (n *Net) sameDomain(a, b *Switch) bool {
	if a == b {
		return true
	}
	if !n.routesValid {
		n.computeRoutes()
	}
	return a.domain == b.domain
}

// computeBroadcastDomains numbers the broadcast domains. Each router is a
// domain with its own ports.
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
	for _, w := range s.out {
		if !s.cfg.Routed && !w.to.cfg.Routed && w.to.domain < 0 {
			w.to.joinDomain(domain)
		}
	}
}
