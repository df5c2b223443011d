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

// flatAddrs returns the addresses of a host (numbered from 0) on a rail with one subnet.
func flatAddrs(rail, host int) []netip.Prefix {
	n := host + 1
	return []netip.Prefix{
		netip.PrefixFrom(v6(rail, 0, 0, 0, 0, n), 64),
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rail), byte(n >> 8), byte(n)}), 16),
	}
}

// leafAddrs returns the addresses with the host number n (from 1) in the subnet of a leaf.
func leafAddrs(rail, leaf, n int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(v6(rail, leaf, 0, 0, 0, n), 64),
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rail), byte(leaf), byte(n)}), 24),
	}
}

// trunkAddrs returns the addresses of both ends of the cable between a leaf and a spine. The two
// ends are the only addresses of their subnet. spines is the number of spines.
func trunkAddrs(rail, leaf, spine, spines int) (atLeaf, atSpine []netip.Prefix) {
	end := func(side int) []netip.Prefix {
		n := 2*(leaf*spines+spine) + side
		return []netip.Prefix{
			// Interface IDs 2 and 3: with 0 the address would look like a prefix.
			netip.PrefixFrom(v6(rail, trunkSubnet, leaf, spine, 0, 2+side), 127),
			netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + rail), byte(n >> 8), byte(n)}), 31),
		}
	}
	return end(0), end(1)
}

// v6 returns the IPv6 address fd00:fab:rail:subnet:rest, where rest is four 16-bit groups.
func v6(rail, subnet int, rest ...int) netip.Addr {
	var a [16]byte
	for i, group := range append([]int{0xfd00, 0xfab, rail, subnet}, rest...) {
		a[2*i], a[2*i+1] = byte(group>>8), byte(group)
	}
	return netip.AddrFrom16(a)
}

// withoutLengths returns the addresses in prefixes, without the prefix lengths.
func withoutLengths(prefixes []netip.Prefix) []netip.Addr {
	addrs := make([]netip.Addr, 0, len(prefixes))
	for _, p := range prefixes {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// MAC returns the MAC address of a port: 02:fa and the indices of the host and its NIC in the
// topology, or 02:fb, the switch's index and the port's number. It is nil for an unknown port.
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
