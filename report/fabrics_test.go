package report_test

import "github.com/fabrictest/fabrictest/netns/topology"

// starLink are the properties of all cables of a star.
var starLink = topology.Link{MTU: 4200, RateBps: 100e9, Latency: 1000}

func drawn(t topology.Topology, err error) *topology.Topology {
	if err != nil {
		panic(err)
	}
	return &t
}

// pairOf is two hosts back to back.
func pairOf(rails int) *topology.Topology {
	return drawn(topology.Pair(topology.Options{Rails: rails}))
}

// starOf is hosts around a switch per rail.
func starOf(hosts, rails int) *topology.Topology {
	return drawn(topology.Star(hosts, topology.Options{Rails: rails, Link: starLink}))
}

// fatTreeOf is hosts on leaves, and every leaf on every spine.
func fatTreeOf(hosts, leaves, spines int) *topology.Topology {
	return drawn(topology.FatTree(leaves, spines, hosts, topology.Options{}))
}

// endName returns the name of a port in link counters.
func endName(p topology.Port) string {
	if p.NIC == "" {
		return p.Node
	}
	return p.String()
}
