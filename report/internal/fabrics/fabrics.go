// Package fabrics makes topologies for the tests of reports.
package fabrics

import "github.com/fabrictest/fabrictest/netns/topology"

// link are the properties of all cables of a star.
var link = topology.Link{MTU: 4200, RateBps: 100e9, Latency: 1000}

func must(t topology.Topology, err error) *topology.Topology {
	if err != nil {
		panic(err)
	}
	return &t
}

// Pair is two hosts back to back.
func Pair(rails int) *topology.Topology { return must(topology.Pair(topology.Options{Rails: rails})) }

// Star is hosts around a switch per rail.
func Star(hosts, rails int) *topology.Topology {
	return must(topology.Star(hosts, topology.Options{Rails: rails, Link: link}))
}

// FatTree is hosts on leaves, and every leaf on every spine.
func FatTree(hosts, leaves, spines int) *topology.Topology {
	return must(topology.FatTree(leaves, spines, hosts, topology.Options{}))
}

// End returns the name of a port in link counters.
func End(p topology.Port) string {
	if p.NIC == "" {
		return p.Node
	}
	return p.String()
}
