package softiwarp

import (
	"net"
	"net/netip"
)

// defaultMTU is the MTU if the interface is not found: that of Ethernet.
const defaultMTU = 1500

// interfaceMTU is the MTU of the interface that owns the address, in the network namespace
// of the calling thread.
func interfaceMTU(a netip.Addr) int {
	all, err := net.Interfaces()
	if err != nil {
		return defaultMTU // only reported by QueryPort
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, p := range addrs {
			if n, ok := p.(*net.IPNet); ok && ownsAddr(&i, n, a) {
				return i.MTU
			}
		}
	}
	return defaultMTU
}

// ownsAddr reports whether a is address n of the interface, or in a loopback network.
func ownsAddr(i *net.Interface, n *net.IPNet, a netip.Addr) bool {
	ip := net.IP(a.Unmap().AsSlice())
	return n.IP.Equal(ip) || i.Flags&net.FlagLoopback != 0 && n.Contains(ip)
}
