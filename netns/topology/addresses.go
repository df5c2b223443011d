package topology

import (
	"net"
	"net/netip"
)

// The address plan. Rail, leaf and host follow from an address:
//
//	fd00:fab:R:L::h/64        10.R.L.h/24       host h-1 of leaf L on rail R
//	fd00:fab:R:0::h/64        10.R.x.y/16       the same without leaves
//	fd00:fab:R:ffff:L:S:0:n   172.(16+R).x.y    the cable of leaf L and spine S
const (
	maxRails        = 8
	maxHosts        = 1<<16 - 2 // of a subnet of 16 bits
	maxLeaves       = 1 << 8
	maxHostsPerLeaf = gatewayHost - 1
	maxTrunks       = 1 << 15 // cables between leaves and spines of one rail: 16 bits of /31
	gatewayHost     = 254
	trunkSubnet     = 0xffff
)

// flatAddrs returns the addresses of a host on a rail with one subnet.
func flatAddrs(rail, host int) []netip.Prefix {
	n := host + 1
	return []netip.Prefix{
		netip.PrefixFrom(v6(rail, 0, 0, 0, 0, n), 64),
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rail), byte(n >> 8), byte(n)}), 16),
	}
}

// leafAddrs returns the addresses of the n-th node in the subnet of a leaf.
func leafAddrs(rail, leaf, n int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(v6(rail, leaf, 0, 0, 0, n), 64),
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rail), byte(leaf), byte(n)}), 24),
	}
}

// trunkAddrs returns the addresses of both ends of a leaf-spine cable.
func trunkAddrs(rail, leaf, spine, spines int) (atLeaf, atSpine []netip.Prefix) {
	end := func(side int) []netip.Prefix {
		n := 2*(leaf*spines+spine) + side
		return []netip.Prefix{
			// From 2 on: an address that ends in zeros looks like a subnet.
			netip.PrefixFrom(v6(rail, trunkSubnet, leaf, spine, 0, 2+side), 127),
			netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + rail), byte(n >> 8), byte(n)}), 31),
		}
	}
	return end(0), end(1)
}

func v6(rail, subnet int, rest ...int) netip.Addr {
	var a [16]byte
	for i, word := range append([]int{0xfd00, 0xfab, rail, subnet}, rest...) {
		a[2*i], a[2*i+1] = byte(word>>8), byte(word)
	}
	return netip.AddrFrom16(a)
}

func addrsOf(ps []netip.Prefix) []netip.Addr {
	as := make([]netip.Addr, 0, len(ps))
	for _, p := range ps {
		as = append(as, p.Addr())
	}
	return as
}

// MAC returns the MAC address of a port, derived from its place in the
// topology: 02:fa, host and NIC, or 02:fb, switch and port. It is nil for an
// unknown port.
func (t Topology) MAC(p Port) net.HardwareAddr {
	for i, h := range t.Hosts {
		if h.Name != p.Node {
			continue
		}
		for j, n := range h.NICs {
			if n.Name == p.NIC {
				return net.HardwareAddr{0x02, 0xfa, byte(i >> 8), byte(i), byte(j >> 8), byte(j)}
			}
		}
		return nil
	}
	for i, s := range t.Switches {
		if s.Name == p.Node {
			return net.HardwareAddr{0x02, 0xfb, byte(i >> 8), byte(i), byte(p.Num >> 8), byte(p.Num)}
		}
	}
	return nil
}
