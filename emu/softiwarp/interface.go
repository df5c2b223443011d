package softiwarp

import (
	"net"
	"net/netip"
)

// defaultMTU is that of Ethernet, for an address whose interface is not found.
const defaultMTU = 1500

// interfaceMTU is the MTU of the interface that has the address, in the network
// namespace of the calling thread.
func interfaceMTU(a netip.Addr) int {
	all, err := net.Interfaces()
	if err != nil {
		return defaultMTU // it is only told, never relied on
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, p := range addrs {
			if n, ok := p.(*net.IPNet); ok && holds(&i, n, a) {
				return i.MTU
			}
		}
	}
	return defaultMTU
}

// holds reports whether a is an address of the interface's. All of a loopback
// network is.
func holds(i *net.Interface, n *net.IPNet, a netip.Addr) bool {
	ip := net.IP(a.Unmap().AsSlice())
	return n.IP.Equal(ip) || i.Flags&net.FlagLoopback != 0 && n.Contains(ip)
}
