package lab

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// portEnd is a port of the plan, selected by one end of its cable. If reversed, the
// pattern named the other end: its outgoing packets come in at the port.
type portEnd struct {
	port     int
	reversed bool
}

// selectPorts returns the ports that the patterns match, ordered by index. Without
// patterns it returns those of all hosts.
func (p *Plan) selectPorts(key string, patterns []string) (picked []portEnd, err error) {
	if len(patterns) == 0 {
		for i := range p.Ports {
			if p.Ports[i].Host >= 0 {
				picked = append(picked, portEnd{port: i})
			}
		}
		return picked, nil
	}
	for i, pattern := range patterns {
		ports, err := p.Topology.Match(pattern)
		if err != nil {
			return nil, p.errorf(fmt.Sprintf("%s[%d]", key, i), "%w", err)
		}
		for _, end := range ports {
			if at := p.ends[cableEndOf(end)]; !slices.Contains(picked, at) {
				picked = append(picked, at)
			}
		}
	}
	slices.SortFunc(picked, func(a, b portEnd) int { return cmp.Compare(a.port, b.port) })
	return picked, nil
}

// cableEnd identifies an end of a cable, as a comparable key.
type cableEnd struct {
	node, nic string
	num       int
}

func cableEndOf(p topology.Port) cableEnd { return cableEnd{node: p.Node, nic: p.NIC, num: p.Num} }

// selectPortIndexes returns the indices of the ports of all matching cables,
// whichever end matches.
func (p *Plan) selectPortIndexes(key string, patterns []string) ([]int, error) {
	picked, err := p.selectPorts(key, patterns)
	var ports []int
	for _, at := range picked {
		if !slices.Contains(ports, at.port) {
			ports = append(ports, at.port)
		}
	}
	return ports, err
}

// selectHosts returns the indices of the matching hosts.
func (p *Plan) selectHosts(key string, patterns []string) (hosts []int, err error) {
	ports, err := p.selectPortIndexes(key, patterns)
	for _, k := range ports {
		switch h := p.Ports[k].Host; {
		case h < 0:
			return nil, p.errorf(key, "%s is not a host", p.Ports[k].Node)
		case !slices.Contains(hosts, h):
			hosts = append(hosts, h)
		}
	}
	return hosts, err
}

// errorf returns an error about a key of the scenario file.
func (p *Plan) errorf(key, format string, args ...any) error {
	return p.Scenario.Errorf(key, format, args...)
}
