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

// plan is the fabric in namespaces: a pair of hosts, or hosts around a switch. There
// are two at least, for a cable has two ends.
func (r *Run) plan() (*lab.Plan, error) {
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
	for h := range p.Topology.Hosts {
		for k := range p.Topology.Hosts[h].NICs {
			giveEach(&p.Topology.Hosts[h].NICs[k], r.PerHost)
		}
	}
	return p, nil
}

// giveEach gives a NIC an address for every rank of its host: RoCE, and iWARP in
// datagrams, have one port each, so devices of their own need addresses of their own.
func giveEach(nic *topology.NIC, ranks int) {
	first := nic.Addrs[0]
	for slot := 1; slot < ranks; slot++ {
		nic.Addrs = append(nic.Addrs, netip.PrefixFrom(addressOf(nic, slot), first.Bits()))
	}
}

// addressOf is that of the slot-th rank of a host: the NIC's own with the slot in the
// last but one of its words.
func addressOf(nic *topology.NIC, slot int) netip.Addr {
	b := nic.Addr(false).As16()
	b[12], b[13] = byte(slot>>8), byte(slot)
	return netip.AddrFrom16(b)
}
