// Package lab has the parts of running a scenario that all tiers share. A [Plan]
// lists for each port which impairments, events and timed faults apply. A tier
// executes the plan and returns an [Observation]. [Judge] compares it with the
// scenario's expectations, and [Observation.FillResult] writes the result.
//
// The tiers are packages: lab/simlab runs a scenario in simulation, lab/nslab in
// network namespaces. This package imports neither, and starts no process,
// goroutine or timer. A Plan does not change after [NewPlan].
package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Plan is a scenario resolved for its topology: impairments by port, and faults as
// timed steps. It is the same on every tier and does not change after NewPlan.
type Plan struct {
	Scenario *scenarios.Scenario
	Provider *nics.Provider // of all NICs
	Topology *topology.Topology
	Seed     uint64
	// Limit is the maximum duration of the run.
	Limit time.Duration
	// Ports has the port of each NIC, in the order of hosts and NICs, and then one
	// port of each trunk: that of the switch on the lower tier. Impairments of the
	// other end of a cable are those of this end with Out and In exchanged.
	Ports []Port
	// Steps are the begins and ends of the timed faults, ordered by time.
	Steps []Step

	ends map[string]portEnd // both ends of every cable, by topology.Port.String
}

// Port is one end of a cable, with its impairments.
type Port struct {
	topology.Port
	// Name is "host0/rdma0", or "leaf0/port4" for a trunk.
	Name string
	Host int // index in Topology.Hosts; -1 for a trunk
	Rail int
	// Cable is the index in Topology.Cables. A cable between two hosts has two
	// ports.
	Cable int
	// Out applies to packets that the port sends, In to those that it receives.
	Out, In Impairments
}

// Impairments apply to the packets of one direction of a port.
type Impairments struct {
	impair.Config
	// EventIndexes has for each of Events its index in the scenario.
	EventIndexes []int
	// StreamEvents apply to bytes of TCP streams.
	StreamEvents []StreamEvent
}

// NewPlan resolves a scenario for its topology. It returns an error for a part of
// the scenario that does not fit the topology.
func NewPlan(s *scenarios.Scenario, opts Options) (*Plan, error) {
	if s.Experiment != nil {
		return nil, s.Errorf("experiment", "an experiment has no fabric: 'fabrictest run' runs it")
	}
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
		return nil, p.Scenario.Errorf("workload.ranks", "%d ranks on %d hosts: a host has at most one rank", n, hosts)
	}
	if err := errors.Join(p.addImpairments(), p.addEvents(), p.addSteps()); err != nil {
		return nil, err
	}
	return p, nil
}

// addPorts fills in p.Ports, first those of hosts and then one for each trunk (a cable between
// switches) at the switch of the lower tier, and p.ends, in which both ends of a cable have an
// entry. An end without a port of its own refers to the port of the other end, reversed.
func (p *Plan) addPorts() error {
	t := p.Topology
	p.ends = make(map[string]portEnd, 2*len(t.Cables))
	add := func(port Port, other topology.Port) {
		port.Name = port.String()
		p.ends[port.Name] = portEnd{port: len(p.Ports)}
		if _, hasPort := p.ends[other.String()]; !hasPort { // both ends may be at hosts
			p.ends[other.String()] = portEnd{port: len(p.Ports), reversed: true}
		}
		p.Ports = append(p.Ports, port)
	}
	cables := make(map[string]int, 2*len(t.Cables))
	for i, c := range t.Cables {
		cables[c.A.String()], cables[c.B.String()] = i, i
	}
	for h, host := range t.Hosts {
		for _, nic := range host.NICs {
			at := topology.Port{Node: host.Name, NIC: nic.Name}
			i, ok := cables[at.String()]
			if !ok {
				return p.Scenario.Errorf("fabric", "%v has no cable", at)
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

// ImpairsCable reports whether packets on a cable, given by its index, may be
// impaired at any time of the run. Links that go down and partitions do not count.
func (p *Plan) ImpairsCable(cable int) bool {
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

// empty reports whether there are no impairments and no events.
func (m *Impairments) empty() bool {
	return len(m.Specs) == 0 && len(m.Events) == 0 && len(m.StreamEvents) == 0
}

// RandSources returns the random sources for the impairments of one direction of a port. They
// depend on the seed only, and are the same in a simulation (package sim gives them these names)
// and in network namespaces.
func (p *Plan) RandSources(port int, dir Direction) func(kind string) impair.Source {
	simName := []string{Out: "up", In: "down"}[dir]
	return impair.RandSources(p.Seed, RailName(p.Ports[port].Rail)+"/"+p.Ports[port].Name+"/"+simName)
}

// RailName returns the name of a rail's network in traces and random sources.
func RailName(rail int) string { return fmt.Sprintf("rail%d", rail) }

// Direction is the direction of a packet relative to its port.
type Direction int

// The directions: Out of the port, and In to it.
const (
	Out Direction = iota
	In
)

// Links has the counters of both directions of every cable.
type Links struct {
	plan *Plan
	All  []report.Link // two for each cable: from A, then from B
}

// NewLinks returns the counters of all links, two for each cable, one per direction. All are zero.
func NewLinks(plan *Plan) *Links {
	l := &Links{plan: plan, All: make([]report.Link, 2*len(plan.Topology.Cables))}
	for i, c := range plan.Topology.Cables {
		impaired := plan.ImpairsCable(i)
		l.All[2*i] = report.Link{From: cableEndName(c.A), To: cableEndName(c.B), Impaired: impaired, RateBps: c.Link.RateBps}
		l.All[2*i+1] = report.Link{From: cableEndName(c.B), To: cableEndName(c.A), Impaired: impaired, RateBps: c.Link.RateBps}
	}
	return l
}

// cableEndName returns "host0/rdma0" for the end at a host, and "switch0" for one at a switch.
func cableEndName(p topology.Port) string {
	if p.NIC == "" {
		return p.Node
	}
	return p.String()
}

// At returns the counters of the directions from a port and to it.
func (l *Links) At(port int) (out, in *report.Link) {
	p := &l.plan.Ports[port]
	out, in = &l.All[2*p.Cable], &l.All[2*p.Cable+1]
	if !l.plan.Topology.Cables[p.Cable].A.Same(p.Port) {
		out, in = in, out
	}
	return out, in
}

// AddLost adds n packets lost for a cause.
func AddLost(l *report.Link, cause string, n uint64) {
	if n == 0 {
		return
	}
	if l.Lost == nil {
		l.Lost = make(map[string]uint64)
	}
	l.Lost[cause] += n
}

// AddPipeCounters adds the counters of the impairments of one direction to a link of the report.
// EventsDropped are packets dropped by events of the scenario, not at random.
func AddPipeCounters(l *report.Link, c impair.Counters) {
	AddLost(l, "loss", c.Lost)
	AddLost(l, "burst", c.LostInBurst)
	AddLost(l, "rate_queue_full", c.Overflowed)
	AddLost(l, "event", c.EventsDropped)
	l.Duplicated += c.Duplicated
	l.Reordered += c.Reordered
	l.Corrupted += c.Corrupted + c.Truncated
	l.Marked += c.Marked
}
