// Package fabrics makes the fabrics that the tests of reports draw and tell about.
// Their names and addresses are like those of package netns/topology.
package fabrics

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// host makes a host with a NIC on each rail.
func host(i, rails int) topology.Host {
	h := topology.Host{Name: fmt.Sprintf("host%d", i)}
	for r := range rails {
		h.NICs = append(h.NICs, topology.NIC{
			Name: fmt.Sprintf("rdma%d", r), Rail: r,
			Addrs: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("fd00:fab:%x::%x/64", r, i+1)),
				netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.%d/16", r, i/200, i%200+1)),
			},
		})
	}
	return h
}

func at(node, nic string) topology.Port { return topology.Port{Node: node, NIC: nic} }

// Pair is two hosts back to back.
func Pair(rails int) *topology.Topology {
	t := &topology.Topology{Hosts: []topology.Host{host(0, rails), host(1, rails)}}
	for r := range rails {
		nic := fmt.Sprintf("rdma%d", r)
		t.Cables = append(t.Cables, topology.Cable{A: at("host0", nic), B: at("host1", nic)})
	}
	return t
}

// Star is hosts around a switch, one a rail.
func Star(hosts, rails int) *topology.Topology {
	t := &topology.Topology{}
	for r := range rails {
		t.Switches = append(t.Switches, topology.Switch{Name: fmt.Sprintf("switch%d", r), Rail: r, Tier: 1})
	}
	for i := range hosts {
		t.Hosts = append(t.Hosts, host(i, rails))
		for r := range rails {
			t.Cables = append(t.Cables, topology.Cable{
				A: at(t.Hosts[i].Name, fmt.Sprintf("rdma%d", r)), B: at(fmt.Sprintf("switch%d", r), ""),
				Link: topology.Link{MTU: 4200, RateBps: 100e9, Latency: 1000},
			})
		}
	}
	return t
}

// FatTree is hosts on leaves, and every leaf on every spine.
func FatTree(hosts, leaves, spines int) *topology.Topology {
	t := &topology.Topology{}
	for i := range leaves {
		t.Switches = append(t.Switches, topology.Switch{Name: fmt.Sprintf("leaf%d", i), Tier: 1, Routed: true})
	}
	for i := range spines {
		t.Switches = append(t.Switches, topology.Switch{Name: fmt.Sprintf("spine%d", i), Tier: 2, Routed: true})
	}
	for i := range hosts {
		t.Hosts = append(t.Hosts, host(i, 1))
		t.Cables = append(t.Cables, topology.Cable{A: at(t.Hosts[i].Name, "rdma0"), B: at(fmt.Sprintf("leaf%d", i*leaves/hosts), "")})
	}
	for l := range leaves {
		for s := range spines {
			t.Cables = append(t.Cables, topology.Cable{A: at(fmt.Sprintf("leaf%d", l), ""), B: at(fmt.Sprintf("spine%d", s), "")})
		}
	}
	return t
}

// End is how a link's counters call a port.
func End(p topology.Port) string {
	if p.NIC == "" {
		return p.Node
	}
	return p.Node + "/" + p.NIC
}
