package lab

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Step is the begin or the end of a fault.
type Step struct {
	At time.Duration
	// Undo is true for the end of a fault.
	Undo bool
	Do   scenarios.FaultAction
	// Fault is the index in the scenario. Repetition counts the repetitions of the
	// fault from 0.
	Fault, Repetition int
	// Until is the time of the end; 0 if the fault does not end.
	Until time.Duration
	// Ports are the ports of a link fault.
	Ports []int
	// Hosts are the hosts of a kill, freeze or qp-error.
	Hosts []int
	// Groups are the ports of each group of a partition. Ports in no group form one more group.
	Groups [][]int
	// Set has the new random impairments; at the end of a fault, the previous ones.
	// Events are not affected.
	Set []SpecChange
}

// SpecChange replaces the random impairments of one direction of a port.
type SpecChange struct {
	Port      int
	Direction Direction
	Specs     []impair.Spec
}

// addSteps adds the begin and the end of each fault of the scenario to the steps, sorted by time.
func (p *Plan) addSteps() error {
	errs := make([]error, 0, len(p.Scenario.Faults))
	for i := range p.Scenario.Faults {
		steps, err := p.faultSteps(i)
		errs = append(errs, err)
		p.Steps = append(p.Steps, steps...)
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int {
		if a.At == b.At && a.Undo != b.Undo { // faults end before others begin
			if a.Undo {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.At, b.At)
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := p.checkOverlaps(); err != nil {
		return err
	}
	p.setRestoredSpecs()
	return nil
}

// checkOverlaps returns an error if a fault of a host (not of a port) begins after the host was
// killed, or if two faults of one kind overlap at one port or host: the end of the first would undo
// the second. Impairments that were set without an end may be replaced.
func (p *Plan) checkOverlaps() error {
	type location struct {
		do    scenarios.FaultAction
		where int // a port, a host, or 0 for the whole fabric
	}
	active := make(map[location]*Step)
	killedBy := make(map[int]int) // index of the fault that kills a host, by host
	for i := range p.Steps {
		s := &p.Steps[i]
		var locations []location
		switch s.Do {
		case scenarios.Partition:
			locations = append(locations, location{s.Do, 0})
		case scenarios.Down, scenarios.SetImpair:
			for _, k := range s.Ports {
				locations = append(locations, location{s.Do, k})
			}
		default:
			for _, h := range s.Hosts {
				locations = append(locations, location{s.Do, h})
				if killer, dead := killedBy[h]; dead && !s.Undo {
					return p.Scenario.Errorf(fmt.Sprintf("faults[%d]", s.Fault), "at %v: %s was killed by faults[%d] before", s.At, p.Topology.Hosts[h].Name, killer)
				}
				if s.Do == scenarios.Kill {
					killedBy[h] = s.Fault
				}
			}
		}
		for _, at := range locations {
			before, overlaps := active[at]
			switch {
			case s.Undo:
				delete(active, at)
			case overlaps && (s.Do != scenarios.SetImpair || before.Until > 0):
				return p.Scenario.Errorf(fmt.Sprintf("faults[%d]", s.Fault), "begins at %v while faults[%d] is active: %s; end that fault first, with its key \"for\"", s.At, before.Fault, p.DescribeStep(before))
			case s.Do != scenarios.QPError: // has no duration
				active[at] = s
			}
		}
	}
	return nil
}

// faultSteps returns the steps of Faults[index] of the scenario: for each repetition one that
// applies the fault and, if it has a duration, one that undoes it.
func (p *Plan) faultSteps(index int) (steps []Step, err error) {
	f, key := &p.Scenario.Faults[index], fmt.Sprintf("faults[%d]", index)
	apply, undo := Step{Do: f.Do, Fault: index}, Step{Do: f.Do, Fault: index, Undo: true}
	switch f.Do {
	case scenarios.Down:
		apply.Ports, err = p.selectPortIndexes(key+".on", f.On)
	case scenarios.SetImpair:
		apply.Set, err = p.specChanges(key, f)
		for _, r := range apply.Set {
			if !slices.Contains(apply.Ports, r.Port) {
				apply.Ports = append(apply.Ports, r.Port)
			}
		}
	case scenarios.Partition:
		apply.Groups, err = p.partitionGroups(key, f.Groups)
	case scenarios.Kill, scenarios.Freeze, scenarios.QPError:
		if len(f.On) == 0 {
			return nil, p.Scenario.Errorf(key+".on", "%s needs a list of hosts", f.Do)
		}
		apply.Hosts, err = p.selectHosts(key+".on", f.On)
	default:
		err = p.Scenario.Errorf(key+".do", "%q is none of down, partition, impair, kill, freeze, qp-error", f.Do)
	}
	if err != nil {
		return nil, err
	}
	if f.For > 0 && (f.Do == scenarios.Kill || f.Do == scenarios.QPError) {
		return nil, p.Scenario.Errorf(key+".for", "%s has no duration", f.Do)
	}
	undo.Ports, undo.Hosts, undo.Groups = apply.Ports, apply.Hosts, apply.Groups
	undo.Set = apply.Set // same ports and directions; setRestoredSpecs sets the previous specs
	for repetition := range max(f.Times, 1) {
		apply.Repetition, undo.Repetition = repetition, repetition
		apply.At = f.At + time.Duration(repetition)*f.Every
		undo.At = apply.At + f.For
		if f.For > 0 {
			apply.Until, undo.Until = undo.At, undo.At
		}
		if steps = append(steps, apply); f.For > 0 {
			steps = append(steps, undo)
		}
	}
	return steps, nil
}

// specChanges returns the impairments that an impair fault sets, one entry for each direction of a
// port. A scenario may name the end of a cable that has no port; end.reversed is then set, end.port
// is the port at the other end, and the directions are swapped. key is the key of the fault in the
// scenario, for errors.
func (p *Plan) specChanges(key string, f *scenarios.Fault) (set []SpecChange, err error) {
	if f.Set == nil {
		return nil, p.Scenario.Errorf(key+".set", "an impair fault needs impairments")
	}
	spec := impairSpec(f.Set)
	if err := spec.Validate(); err != nil {
		return nil, p.Scenario.Errorf(key+".set", "%w", err)
	}
	ends, err := p.selectPorts(key+".set.on", f.Set.On)
	for _, end := range ends {
		for _, dir := range []Direction{Out, In} {
			outward := dir == Out
			if end.reversed {
				outward = !outward
			}
			selected := f.Set.Inward()
			if outward {
				selected = f.Set.Outward()
			}
			same := func(r SpecChange) bool { return r.Port == end.port && r.Direction == dir }
			if selected && !slices.ContainsFunc(set, same) {
				set = append(set, SpecChange{end.port, dir, []impair.Spec{spec}})
			}
		}
	}
	return set, err
}

// setRestoredSpecs sets the impairments of each step that ends an impair fault to those that were
// in effect before the fault.
func (p *Plan) setRestoredSpecs() {
	type direction struct {
		port int
		dir  Direction
	}
	type change struct { // of one direction, by one repetition of a fault
		direction
		fault, repetition int
	}
	current, replaced := make(map[direction][]impair.Spec), make(map[change][]impair.Spec)
	for i := range p.Ports {
		current[direction{i, Out}], current[direction{i, In}] = p.Ports[i].Out.Specs, p.Ports[i].In.Specs
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		set := slices.Clone(s.Set)
		for k := range set {
			d := direction{set[k].Port, set[k].Direction}
			c := change{d, s.Fault, s.Repetition}
			if s.Undo {
				set[k].Specs = replaced[c]
			} else {
				replaced[c] = current[d]
			}
			current[d] = set[k].Specs
		}
		s.Set = set
	}
}

// partitionGroups returns the ports of each group of a partition. Groups must not be empty or
// overlap, and have ports of hosts only. key is the key of the fault in the scenario, for errors.
func (p *Plan) partitionGroups(key string, groups [][]string) (sides [][]int, err error) {
	if len(groups) == 0 {
		return nil, p.Scenario.Errorf(key+".groups", "a partition needs groups of hosts: [[host0, host1], [host2]]")
	}
	groupOf := make(map[int]int) // by port
	for i, g := range groups {
		at := fmt.Sprintf("%s.groups[%d]", key, i)
		if len(g) == 0 {
			return nil, p.Scenario.Errorf(at, "the group is empty")
		}
		ports, err := p.selectPortIndexes(at, g)
		if err != nil {
			return nil, err
		}
		for _, k := range ports {
			if p.Ports[k].Host < 0 {
				return nil, p.Scenario.Errorf(at, "%s is not a port of a host: partitions separate hosts", p.Ports[k].Name)
			}
			if other, twice := groupOf[k]; twice {
				return nil, p.Scenario.Errorf(at, "%s is in group %d already", p.Ports[k].Name, other)
			}
			groupOf[k] = i
		}
		sides = append(sides, ports)
	}
	return sides, nil
}

// DescribeStep describes the fault of a step: "host0/rdma0 down".
func (p *Plan) DescribeStep(s *Step) string {
	var names []string
	switch s.Do {
	case scenarios.Partition:
		for _, g := range s.Groups {
			names = append(names, p.portNames(g))
		}
		return "partition of " + strings.Join(names, " | ")
	case scenarios.Down, scenarios.SetImpair:
		names = append(names, p.portNames(s.Ports))
	default:
		for _, h := range s.Hosts {
			names = append(names, p.Topology.Hosts[h].Name)
		}
	}
	return strings.Join(names, ", ") + " " + map[scenarios.FaultAction]string{
		scenarios.Down: "down", scenarios.SetImpair: "impairments replaced", scenarios.Kill: "killed",
		scenarios.Freeze: "frozen", scenarios.QPError: "queue pairs moved to Error",
	}[s.Do]
}

// stepTargets returns the names of the ports and hosts of a step.
func (p *Plan) stepTargets(s *Step) (names []string) {
	for _, k := range slices.Concat(s.Ports, slices.Concat(s.Groups...)) {
		names = append(names, p.Ports[k].Name)
	}
	for _, h := range s.Hosts {
		names = append(names, p.Topology.Hosts[h].Name)
	}
	return names
}

// portNames joins the names of ports, at most maxNames of them, and then the number of others.
func (p *Plan) portNames(ports []int) string {
	const maxNames = 4
	var names []string
	for i, k := range ports {
		if i == maxNames {
			names = append(names, fmt.Sprintf("%d more", len(ports)-maxNames))
			break
		}
		names = append(names, p.Ports[k].Name)
	}
	return strings.Join(names, ", ")
}
