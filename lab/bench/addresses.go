package bench

import "net/netip"

// The hosts of a bench, by the last byte of their addresses.
const (
	firstDevice  = 1
	versionOne   = 9  // the device's address for RoCEv1, which no packet should reach
	firstPeer    = 16 // peers are four hosts in one
	peers        = 4
	firstPartner = 32
	segmentPeer  = 48  // whose TCP is made by hand
	cable        = 254 // where a simulated network finds the device's end, whatever its addresses are
)

// hostAddr is the address of a host in a family.
func hostAddr(family int, host byte) netip.Addr {
	if family == 4 {
		return netip.AddrFrom4([4]byte{10, 66, 0, host})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x00, 2: 0x0f, 3: 0xab, 5: 0x66, 15: host})
}

func hostAddrs(family int, first byte, n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	for i := range addrs {
		addrs[i] = hostAddr(family, first+byte(i))
	}
	return addrs
}
