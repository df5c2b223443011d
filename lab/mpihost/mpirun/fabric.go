package mpirun

import (
	"cmp"
	"net/netip"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// plan returns the plan of the fabric in namespaces: two hosts back to back, or
// hosts around a switch, whose NICs have an address for each rank of the host.
func (r *Config) plan() (*lab.Plan, error) {
	hosts := max(2, (r.Ranks+r.PerHost-1)/r.PerHost)
	s := &scenarios.Scenario{
		Version: scenarios.FormatVersion, Name: "mpirun", Title: "Ranks", Seed: r.Seed, Workload: workload.Config{Kind: workload.AllToAll},
		Fabric: scenarios.Fabric{Kind: scenarios.Star, Hosts: hosts, Rails: r.Rails, Link: scenarios.Link{MTU: scenarios.Bytes(cmp.Or(r.MTU, netns.DefaultMTU))}},
	}
	if hosts == 2 {
		s.Fabric.Kind = scenarios.Pair
	}
	if r.LossPPM > 0 {
		s.Impair = []scenarios.Impairment{{Loss: scenarios.Percent(r.LossPPM)}}
	}
	p, err := lab.NewPlan(s, lab.Options{Seed: r.Seed})
	if err != nil {
		return nil, err
	}
	// Each rank of a host has its own address, because RoCE and datagram-iWARP have a fixed UDP port.
	// The first rank has the NIC's address.
	for _, host := range p.Topology.Hosts {
		for k := range host.NICs {
			nic := &host.NICs[k]
			for slot := 1; slot < r.PerHost; slot++ {
				nic.Addrs = append(nic.Addrs, netip.PrefixFrom(rankAddr(nic, slot), nic.Addrs[0].Bits()))
			}
		}
	}
	return p, nil
}

// rankAddr returns the address of a rank on a NIC: the IPv6 address of the NIC, with
// slot, the index of the rank on its host, in bytes 12 and 13.
func rankAddr(nic *topology.NIC, slot int) netip.Addr {
	const ipv4 = false
	b := nic.Addr(ipv4).As16()
	b[12], b[13] = byte(slot>>8), byte(slot)
	return netip.AddrFrom16(b)
}
