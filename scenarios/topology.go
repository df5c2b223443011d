package scenarios

import (
	"cmp"
	"fmt"
	"path"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// HostCount is how many hosts the fabric has.
func (f *Fabric) HostCount() int {
	if f.Kind == Pair {
		return 2
	}
	return f.Hosts
}

// RailCount is how many NICs each host has.
func (f *Fabric) RailCount() int { return max(f.Rails, 1) }

// RankCount is how many ranks run: one a host, on all hosts unless the workload
// says less.
func (s *Scenario) RankCount() int {
	if s.Workload.Ranks > 0 {
		return s.Workload.Ranks
	}
	return s.Fabric.HostCount()
}

// Topology draws the fabric.
func (s *Scenario) Topology() (topology.Topology, error) {
	t, err := s.Fabric.draw(s.Fabric.Links)
	if err != nil {
		return t, s.Errorf("fabric", "%w", err)
	}
	return t, nil
}

// DefaultMTU is that of cables of which the file says nothing: room for a path
// MTU of 4096 with all headers. It is set here and not left to the tiers, so that
// the same packets pass on all of them.
const DefaultMTU = 4200

// draw draws the fabric with some exceptions among its cables.
func (f *Fabric) draw(links map[string]Link) (topology.Topology, error) {
	o := topology.Options{Rails: f.RailCount(), Link: f.Link.cable()}
	o.Link.MTU = cmp.Or(o.Link.MTU, DefaultMTU)
	if len(links) > 0 {
		o.Links = make(map[string]topology.Link, len(links))
		for pattern, l := range links {
			o.Links[pattern] = l.cable()
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
	return topology.Topology{}, fmt.Errorf("kind %s is none of pair, star, fat-tree", shown(string(f.Kind)))
}

func (l Link) cable() topology.Link {
	return topology.Link{
		MTU: int(l.MTU), RateBps: uint64(l.Rate), Latency: l.Latency, QueueBytes: int(l.Queue),
		ECN: topology.ECN{MinBytes: int(l.ECN.Min), MaxBytes: int(l.ECN.Max), MaxPPM: l.ECN.Share.PPM()},
	}
}

// MatchHost reports whether any of the patterns picks a host by its name. A
// pattern that is malformed picks none; the loader refuses those.
func MatchHost(patterns []string, host string) bool {
	for _, p := range patterns {
		if ok, err := path.Match(p, host); ok && err == nil {
			return true
		}
	}
	return false
}
