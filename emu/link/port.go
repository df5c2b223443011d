package link

import "net/netip"

// PortObserver hears what becomes of the port that a stack's network is behind:
// what a NIC learns from its cable and from its host.
type PortObserver interface {
	// LinkChanged says that the port's link has gone down or come up. It may be told
	// what it knows already.
	LinkChanged(up bool)
	// AddrChanged says that one of the port's addresses was taken away, or is there
	// again. It may be told what it knows already.
	AddrChanged(addr netip.Addr, present bool)
}
