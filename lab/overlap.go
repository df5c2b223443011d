package lab

import (
	"fmt"

	"github.com/fabrictest/fabrictest/scenarios"
)

// checkOverlaps refuses faults that meet others of their kind at one place: what
// the end of one would undo of the other is anybody's guess. Faults of different
// kinds do not mind each other, and impairments that were set for good may be
// set anew.
func (p *Plan) checkOverlaps() error {
	type spot struct {
		do    scenarios.FaultAction
		where int // a port, a host, or 0 for the whole fabric
	}
	holds := make(map[spot]*Step)
	dead := make(map[int]int) // hosts, and the fault that killed each
	for i := range p.Steps {
		s := &p.Steps[i]
		var spots []spot
		switch s.Do {
		case scenarios.Partition:
			spots = append(spots, spot{s.Do, 0})
		case scenarios.Down, scenarios.SetImpair:
			for _, k := range s.Ports {
				spots = append(spots, spot{s.Do, k})
			}
		default:
			for _, h := range s.Hosts {
				spots = append(spots, spot{s.Do, h})
				if killer, gone := dead[h]; gone && !s.Undo {
					return p.bad(fmt.Sprintf("faults[%d]", s.Fault), "at %v: %s was killed by faults[%d] before", s.At, p.Topology.Hosts[h].Name, killer)
				}
				if s.Do == scenarios.Kill {
					dead[h] = s.Fault
				}
			}
		}
		for _, at := range spots {
			before, taken := holds[at]
			switch {
			case s.Undo:
				delete(holds, at)
			case taken && (s.Do != scenarios.SetImpair || before.Until > 0):
				return p.bad(fmt.Sprintf("faults[%d]", s.Fault), "begins at %v while faults[%d] still holds: %s; end that first, with for", s.At, before.Fault, p.What(before))
			case s.Do != scenarios.QPError: // that is over at once
				holds[at] = s
			}
		}
	}
	return nil
}
