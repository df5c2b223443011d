package lab

import (
	"fmt"

	"github.com/fabrictest/fabrictest/scenarios"
)

// checkOverlaps returns an error if two faults of one kind overlap at one place,
// because the end of the first would undo the second. Impairments that were set
// without an end may be replaced.
func (p *Plan) checkOverlaps() error {
	type location struct {
		do    scenarios.FaultAction
		where int // a port, a host, or 0 for the whole fabric
	}
	active := make(map[location]*Step)
	killedBy := make(map[int]int) // host -> fault
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
					return p.errorf(fmt.Sprintf("faults[%d]", s.Fault), "at %v: %s was killed by faults[%d] before", s.At, p.Topology.Hosts[h].Name, killer)
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
				return p.errorf(fmt.Sprintf("faults[%d]", s.Fault), "begins at %v while faults[%d] is active: %s; end that first, with for", s.At, before.Fault, p.DescribeStep(before))
			case s.Do != scenarios.QPError: // has no duration
				active[at] = s
			}
		}
	}
	return nil
}
