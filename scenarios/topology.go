package scenarios

import (
	"cmp"
	"fmt"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// HostCount is the number of hosts.
func (f *Fabric) HostCount() int {
	if f.Kind == Pair {
		return 2
	}
	return f.Hosts
}

// RailCount is the number of NICs of each host.
func (f *Fabric) RailCount() int { return max(f.Rails, 1) }

// RankCount is the number of ranks: one per host, unless the workload has fewer.
func (s *Scenario) RankCount() int { return cmp.Or(s.Workload.Ranks, s.Fabric.HostCount()) }

// Topology builds the topology of the fabric.
func (s *Scenario) Topology() (topology.Topology, error) {
	t, err := s.Fabric.build(s.Fabric.Links)
	if err != nil {
		return t, s.Errorf("fabric", "%w", err)
	}
	return t, nil
}

// DefaultMTU is the default MTU of cables: a path MTU of 4096 with all headers. It is the
// same on all tiers.
const DefaultMTU = 4200

// build builds the topology. links has the exceptions from f.Link, by port pattern.
func (f *Fabric) build(links map[string]Link) (topology.Topology, error) {
	o := topology.Options{Rails: f.RailCount(), Link: f.Link.topologyLink()}
	o.Link.MTU = cmp.Or(o.Link.MTU, DefaultMTU)
	if len(links) > 0 {
		o.Links = make(map[string]topology.Link, len(links))
		for pattern, l := range links {
			o.Links[pattern] = l.topologyLink()
		}
	}
	switch f.Kind {
	case Pair:
		return topology.Pair(o)
	case Star:
		return topology.Star(f.Hosts, o)
	case FatTree:
		return topology.FatTree(f.Leaves, f.Spines, f.Hosts, o)
	}
	return topology.Topology{}, fmt.Errorf("kind %s is none of pair, star, fat-tree", quoteShort(string(f.Kind)))
}

// topologyLink converts the properties of a cable for package topology.
func (l Link) topologyLink() topology.Link {
	return topology.Link{
		MTU: int(l.MTU), RateBps: uint64(l.Rate), Latency: l.Latency, QueueBytes: int(l.Queue),
		ECN: topology.ECN{MinBytes: int(l.ECN.Min), MaxBytes: int(l.ECN.Max), MaxPPM: l.ECN.Share.PPM()},
	}
}
