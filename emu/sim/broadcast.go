package sim

import "net/netip"

// limitedBroadcast is the address of everybody on the link (RFC 919). IPv6 has
// the group of all nodes instead, which hosts join as any other.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// isGroup reports whether what is sent to an address goes to more than one port.
func isGroup(a netip.Addr) bool { return a.IsMulticast() || a == limitedBroadcast }

// everybody appends the ports that a broadcast reaches: all of the sender's
// broadcast domain, joined or not, as a switch floods them. The sender's own is
// among them only if it has joined: a host loops a broadcast back to those of its
// sockets that are bound to that address, and not to others.
func (n *Net) everybody(to []*Port, sender *Port) []*Port {
	for _, p := range n.ports {
		switch {
		case p.closed || !n.sameDomain(sender.sw, p.sw):
		case p != sender || p.joins[limitedBroadcast] > 0:
			to = append(to, p)
		}
	}
	return to
}

// sameDomain reports whether broadcasts pass from one switch to another: where
// every switch on the way is one, and no router.
func (n *Net) sameDomain(a, b *Switch) bool {
	if a == b {
		return true
	}
	if !n.routed {
		n.findWays()
	}
	return a.domain == b.domain
}

// findDomains numbers the broadcast domains. A router is one of its own: what its
// ports broadcast reaches its ports.
func (n *Net) findDomains() {
	for _, s := range n.switches {
		s.domain = -1
	}
	for i, s := range n.switches {
		if s.domain < 0 {
			s.flood(i)
		}
	}
}

// flood puts s and what it passes broadcasts on to into a domain.
func (s *Switch) flood(domain int) {
	s.domain = domain
	for _, w := range s.out {
		if !s.cfg.Routed && !w.to.cfg.Routed && w.to.domain < 0 {
			w.to.flood(domain)
		}
	}
}
