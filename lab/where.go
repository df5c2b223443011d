package lab

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// place is a port as a pattern picked it: flipped where it was picked at the
// other end of its cable, from which packets go out that come in here.
type place struct {
	port    int
	flipped bool
}

// pick returns the ports that any of the patterns picks, in their order; those
// of all hosts if there is no pattern.
func (p *Plan) pick(key string, patterns []string) (picked []place, err error) {
	if len(patterns) == 0 {
		for i := range p.Ports {
			if p.Ports[i].Host >= 0 {
				picked = append(picked, place{port: i})
			}
		}
		return picked, nil
	}
	for i, pattern := range patterns {
		ports, err := p.Topology.Match(pattern)
		if err != nil {
			return nil, p.bad(fmt.Sprintf("%s[%d]", key, i), "%w", err)
		}
		for _, end := range ports {
			if at := p.places[endOf(end)]; !slices.Contains(picked, at) {
				picked = append(picked, at)
			}
		}
	}
	slices.SortFunc(picked, func(a, b place) int { return cmp.Compare(a.port, b.port) })
	return picked, nil
}

// end names an end of a cable: topology.Port without what makes it hard to
// compare.
type end struct {
	node, nic string
	num       int
}

func endOf(p topology.Port) end { return end{node: p.Node, nic: p.NIC, num: p.Num} }

// portsOf returns which ports the patterns pick, whichever end they name.
func (p *Plan) portsOf(key string, patterns []string) ([]int, error) {
	picked, err := p.pick(key, patterns)
	var ports []int
	for _, at := range picked {
		if !slices.Contains(ports, at.port) {
			ports = append(ports, at.port)
		}
	}
	return ports, err
}

// hostsOf returns which hosts the patterns pick, by index.
func (p *Plan) hostsOf(key string, patterns []string) (hosts []int, err error) {
	ports, err := p.portsOf(key, patterns)
	for _, k := range ports {
		switch h := p.Ports[k].Host; {
		case h < 0:
			return nil, p.bad(key, "%s is no host", p.Ports[k].Node)
		case !slices.Contains(hosts, h):
			hosts = append(hosts, h)
		}
	}
	return hosts, err
}

// bad is an error about a key of the scenario.
func (p *Plan) bad(key, format string, args ...any) error {
	return p.Scenario.Errorf(key, format, args...)
}
