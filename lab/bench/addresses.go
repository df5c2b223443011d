package bench

import (
	"net"
	"net/netip"
)

// The last byte of the addresses of hosts.
const (
	firstDevice  = 1
	roceV1Host   = 9  // the device's RoCEv1 address, which no packet should use
	firstPeer    = 16 // the peer has four addresses
	peers        = 4
	firstPartner = 32
	segmentPeer  = 48  // for the user-space TCP
	cableHost    = 254 // address of the device's port for packets to unknown addresses
)

// hostAddr returns the address of a host in a family.
func hostAddr(family int, host byte) netip.Addr {
	if family == 4 {
		return netip.AddrFrom4([4]byte{10, 66, 0, host})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x00, 2: 0x0f, 3: 0xab, 5: 0x66, 15: host})
}

// hostAddrs returns the addresses of n hosts.
func hostAddrs(family int, first byte, n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	for i := range addrs {
		addrs[i] = hostAddr(family, first+byte(i))
	}
	return addrs
}

// interfaceAddrs returns a local interface and its addresses.
func interfaceAddrs(name string) (*net.Interface, []netip.Prefix, error) {
	intf, err := net.InterfaceByName(name)
	if err != nil {
		return nil, nil, err
	}
	addrs, err := intf.Addrs()
	var all []netip.Prefix
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			all = append(all, prefixOf(n))
		}
	}
	return intf, all, err
}

// prefixOf converts an address of an interface with its network.
func prefixOf(n *net.IPNet) netip.Prefix {
	ip, _ := netip.AddrFromSlice(n.IP) // of 4 or 16 bytes
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits)
}
