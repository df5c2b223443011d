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

// Step is the beginning or the end of a fault.
type Step struct {
	At time.Duration
	// Undo says that the fault ends here.
	Undo bool
	Do   scenarios.FaultAction
	// Fault is its index in the scenario, and Round which of its repetitions this
	// is, from 0.
	Fault, Round int
	// Until is when the fault ends; 0 if it does not.
	Until time.Duration
	// Ports are what a link fault is done to, by index.
	Ports []int
	// Hosts are what a fault of hosts is done to, by index.
	Hosts []int
	// Groups are the ports that a partition keeps apart; those in none form one
	// more group together.
	Groups [][]int
	// Set is what packets meet by chance from then on; at the end of the fault,
	// what they met before. Exact events go on.
	Set []Replace
}

// Replace is what the packets of one direction of a port meet from a step on.
type Replace struct {
	Port  int
	Way   Way
	Specs []impair.Spec
}

// addSteps expands the faults.
func (p *Plan) addSteps() error {
	errs := make([]error, 0, len(p.Scenario.Faults))
	for i := range p.Scenario.Faults {
		steps, err := p.stepsOf(i)
		errs = append(errs, err)
		p.Steps = append(p.Steps, steps...)
	}
	// What ends makes room for what begins at the same time.
	slices.SortStableFunc(p.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(rank(a.Undo), rank(b.Undo)))
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := p.checkOverlaps(); err != nil {
		return err
	}
	p.putBack()
	return nil
}

func rank(undo bool) int {
	if undo {
		return 0
	}
	return 1
}

// stepsOf expands one fault.
func (p *Plan) stepsOf(number int) (steps []Step, err error) {
	f, key := &p.Scenario.Faults[number], fmt.Sprintf("faults[%d]", number)
	first, undo := Step{Do: f.Do, Fault: number}, Step{Do: f.Do, Fault: number, Undo: true}
	switch f.Do {
	case scenarios.Down:
		first.Ports, err = p.portsOf(key+".on", f.On)
	case scenarios.SetImpair:
		first.Set, err = p.replacements(key, f)
		for _, r := range first.Set {
			if !slices.Contains(first.Ports, r.Port) {
				first.Ports = append(first.Ports, r.Port)
			}
		}
	case scenarios.Partition:
		first.Groups, err = p.groups(key, f.Groups)
	case scenarios.Kill, scenarios.Freeze, scenarios.QPError:
		if len(f.On) == 0 {
			return nil, p.bad(key+".on", "%s: say which hosts", f.Do)
		}
		first.Hosts, err = p.hostsOf(key+".on", f.On)
	default:
		err = p.bad(key+".do", "%q is none of down, partition, impair, kill, freeze, qp-error", f.Do)
	}
	if err != nil {
		return nil, err
	}
	if f.For > 0 && (f.Do == scenarios.Kill || f.Do == scenarios.QPError) {
		return nil, p.bad(key+".for", "%s is done in an instant and not undone", f.Do)
	}
	undo.Ports, undo.Hosts, undo.Groups = first.Ports, first.Hosts, first.Groups
	undo.Set = first.Set // until putBack knows better
	for round := range max(f.Times, 1) {
		first.Round, undo.Round = round, round
		first.At = f.At + time.Duration(round)*f.Every
		undo.At = first.At + f.For
		if f.For > 0 {
			first.Until, undo.Until = undo.At, undo.At
		}
		if steps = append(steps, first); f.For > 0 {
			steps = append(steps, undo)
		}
	}
	return steps, nil
}

// replacements are what an impair fault sets.
func (p *Plan) replacements(key string, f *scenarios.Fault) (set []Replace, err error) {
	if f.Set == nil {
		return nil, p.bad(key+".set", "say what packets meet from then on")
	}
	spec := specOf(f.Set)
	if err := spec.Validate(); err != nil {
		return nil, p.bad(key+".set", "%w", err)
	}
	picked, err := p.pick(key+".set.on", f.Set.On)
	for _, x := range picked {
		for _, way := range []Way{Out, In} {
			meant := f.Set.Outward()
			if (way == In) != x.flipped {
				meant = f.Set.Inward()
			}
			same := func(r Replace) bool { return r.Port == x.port && r.Way == way }
			if meant && !slices.ContainsFunc(set, same) {
				set = append(set, Replace{x.port, way, []impair.Spec{spec}})
			}
		}
	}
	return set, err
}

// putBack fills in what holds again when a fault that replaced impairments ends:
// what held when it began.
func (p *Plan) putBack() {
	type direction struct {
		port int
		way  Way
	}
	type beginning struct {
		direction
		fault, round int
	}
	now, before := make(map[direction][]impair.Spec), make(map[beginning][]impair.Spec)
	for i := range p.Ports {
		now[direction{i, Out}], now[direction{i, In}] = p.Ports[i].Out.Specs, p.Ports[i].In.Specs
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		set := slices.Clone(s.Set)
		for k := range set {
			d := direction{set[k].Port, set[k].Way}
			began := beginning{d, s.Fault, s.Round}
			if s.Undo {
				set[k].Specs = before[began]
			} else {
				before[began] = now[d]
			}
			now[d] = set[k].Specs
		}
		s.Set = set
	}
}

// groups are the ports of each side of a partition.
func (p *Plan) groups(key string, groups [][]string) (sides [][]int, err error) {
	if len(groups) == 0 {
		return nil, p.bad(key+".groups", "say what is kept apart: [[host0, host1], [host2]]")
	}
	in := make(map[int]int)
	for i, g := range groups {
		at := fmt.Sprintf("%s.groups[%d]", key, i)
		if len(g) == 0 {
			return nil, p.bad(at, "an empty group")
		}
		ports, err := p.portsOf(at, g)
		if err != nil {
			return nil, err
		}
		for _, k := range ports {
			if p.Ports[k].Host < 0 {
				return nil, p.bad(at, "%s is no port of a host: a partition keeps hosts apart", p.Ports[k].Name)
			}
			if other, twice := in[k]; twice {
				return nil, p.bad(at, "%s is in group %d already", p.Ports[k].Name, other)
			}
			in[k] = i
		}
		sides = append(sides, ports)
	}
	return sides, nil
}

// What says in a few words what the step does.
func (p *Plan) What(s *Step) string {
	var names []string
	switch s.Do {
	case scenarios.Partition:
		for _, g := range s.Groups {
			names = append(names, p.list(g))
		}
		return "partition of " + strings.Join(names, " | ")
	case scenarios.Down, scenarios.SetImpair:
		names = append(names, p.list(s.Ports))
	default:
		for _, h := range s.Hosts {
			names = append(names, p.Topology.Hosts[h].Name)
		}
	}
	return strings.Join(names, ", ") + " " + map[scenarios.FaultAction]string{
		scenarios.Down: "down", scenarios.SetImpair: "impaired anew", scenarios.Kill: "killed",
		scenarios.Freeze: "frozen", scenarios.QPError: "queue pairs broken",
	}[s.Do]
}

// on names what a step is done to.
func (p *Plan) on(s *Step) (names []string) {
	for _, k := range slices.Concat(s.Ports, slices.Concat(s.Groups...)) {
		names = append(names, p.Ports[k].Name)
	}
	for _, h := range s.Hosts {
		names = append(names, p.Topology.Hosts[h].Name)
	}
	return names
}

// list names ports, not more than fit on a line.
func (p *Plan) list(ports []int) string {
	const enough = 4
	var names []string
	for i, k := range ports {
		if i == enough {
			names = append(names, fmt.Sprintf("%d more", len(ports)-enough))
			break
		}
		names = append(names, p.Ports[k].Name)
	}
	return strings.Join(names, ", ")
}
