package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Plan is what a scenario means for its fabric, port by port and step by step.
// It is the same for every tier; nobody changes it once it is made.
type Plan struct {
	Scenario *scenarios.Scenario
	Provider *nics.Provider // of every NIC
	Topology *topology.Topology
	Seed     uint64
	// Limit is how long the run may take before it is called hung.
	Limit time.Duration
	// Ports are the places where something can happen: the hosts' ends of their
	// cables, in the order of hosts and NICs, then one end of each trunk, the one
	// nearer to the hosts. What a scenario says of a cable's other end is here,
	// with out and in exchanged.
	Ports []Port
	// Steps are the timed faults and their ends, in the order of time.
	Steps []Step

	places map[end]place // every end of every cable
}

// Port is an end of a cable, and what its packets meet.
type Port struct {
	topology.Port
	// Name is "host0/rdma0"; of a trunk "leaf0/port4".
	Name string
	Host int // index in Topology.Hosts; -1 for a trunk
	Rail int
	// Cable is the index in Topology.Cables. Two hosts back to back are two ports
	// of one cable.
	Cable int
	// Out is what packets from the port meet, In what those to it do.
	Out, In Impairments
}

// Impairments are what the packets of one direction meet.
type Impairments struct {
	impair.Config
	// Numbers tell which event of the scenario each of Events is, by its index.
	Numbers []int
	// Streams are exact events at places of TCP streams.
	Streams []StreamEvent
}

// NewPlan works out what a scenario means, or says what in it makes no sense for
// its fabric. A seed of 0 is replaced by the scenario's own.
func NewPlan(s *scenarios.Scenario, opts Options) (*Plan, error) {
	t, err := s.Topology()
	if err != nil {
		return nil, err
	}
	provider, err := Provider(s)
	if err != nil {
		return nil, err
	}
	p := &Plan{Scenario: s, Provider: provider, Topology: &t, Seed: opts.SeedFor(s), Limit: s.TimeLimit()}
	if err := p.addPorts(); err != nil {
		return nil, err
	}
	if n, hosts := s.RankCount(), len(t.Hosts); n > hosts {
		return nil, p.bad("workload.ranks", "%d ranks on %d hosts: there is at most one a host", n, hosts)
	}
	if err := errors.Join(p.addImpairments(), p.addEvents(), p.addSteps()); err != nil {
		return nil, err
	}
	return p, nil
}

// addPorts lists the places where something can happen.
func (p *Plan) addPorts() error {
	t := p.Topology
	p.places = make(map[end]place, 2*len(t.Cables))
	add := func(port Port, other topology.Port) {
		port.Name = port.String()
		p.places[endOf(port.Port)] = place{port: len(p.Ports)}
		if _, taken := p.places[endOf(other)]; !taken {
			p.places[endOf(other)] = place{port: len(p.Ports), flipped: true}
		}
		p.Ports = append(p.Ports, port)
	}
	cables := make(map[end]int, 2*len(t.Cables))
	for i, c := range t.Cables {
		cables[endOf(c.A)], cables[endOf(c.B)] = i, i
	}
	for h, host := range t.Hosts {
		for _, nic := range host.NICs {
			at := topology.Port{Node: host.Name, NIC: nic.Name}
			i, ok := cables[endOf(at)]
			if !ok {
				return p.bad("fabric", "%v has no cable", at)
			}
			add(Port{Port: at, Host: h, Rail: nic.Rail, Cable: i}, t.Cables[i].Other(at))
		}
	}
	for i, c := range t.Cables {
		near, far := c.A, c.B
		a, okA := t.Switch(near.Node)
		b, okB := t.Switch(far.Node)
		if !okA || !okB {
			continue
		}
		if b.Tier < a.Tier {
			a, near, far = b, far, near
		}
		add(Port{Port: near, Host: -1, Rail: a.Rail, Cable: i}, far)
	}
	return nil
}

// Touched reports whether anything may happen to packets on a cable, by its
// index: if not, there is no need to look at them. Faults that replace
// impairments count; links that only go down, and partitions, do not.
func (p *Plan) Touched(cable int) bool {
	for i := range p.Ports {
		port := &p.Ports[i]
		if port.Cable == cable && (!port.Out.empty() || !port.In.empty()) {
			return true
		}
	}
	for i := range p.Steps {
		for _, set := range p.Steps[i].Set {
			if p.Ports[set.Port].Cable == cable {
				return true
			}
		}
	}
	return false
}

func (m *Impairments) empty() bool {
	return len(m.Specs) == 0 && len(m.Events) == 0 && len(m.Streams) == 0
}

// PortsOf returns the indices of a host's ports, one a NIC.
func (p *Plan) PortsOf(host int) (all []int) {
	for i := range p.Ports {
		if p.Ports[i].Host == host {
			all = append(all, i)
		}
	}
	return all
}

// Streams returns where a port's packets in one direction find their fate: the
// same on every tier for the same seed.
func (p *Plan) Streams(port int, way Way) func(kind string) impair.Source {
	return impair.RandSources(p.Seed, RailName(p.Ports[port].Rail)+"/"+p.Ports[port].Name+"/"+way.wire())
}

// RailName names the network of a rail, in traces and random streams.
func RailName(rail int) string { return fmt.Sprintf("rail%d", rail) }

// Way is a direction, as its port sees it.
type Way int

// The directions.
const (
	Out Way = iota
	In
)

// wire is what package sim calls the direction.
func (w Way) wire() string {
	if w == Out {
		return "up"
	}
	return "down"
}
