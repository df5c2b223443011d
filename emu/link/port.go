package link

import "net/netip"

// PortObserver is notified of changes of a stack's port. A notification may repeat a
// known state.
type PortObserver interface {
	// LinkChanged says that the link is up or down.
	LinkChanged(up bool)
	// AddrChanged says that an address was removed from the port, or added again.
	AddrChanged(addr netip.Addr, present bool)
}
