package work

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi/carrier"
)

// MemorySelection selects memory experiments; an empty list selects all.
type MemorySelection struct {
	Experiments []string
	Designs     []string
	Workloads   []string
}

// PlannedMemory is an experiment with the runs that it takes.
type PlannedMemory struct {
	MemoryExperiment
	Runs []MemoryRun
}

// Plan returns the selected experiments that have runs with one of the numbers of ranks.
func (s MemorySelection) Plan(ranks []int) (all []PlannedMemory, err error) {
	for _, e := range MemoryExperiments() {
		if len(s.Experiments) > 0 && !slices.Contains(s.Experiments, e.Name) {
			continue
		}
		if len(s.Designs) > 0 {
			e.Designs = slices.DeleteFunc(e.Designs, func(d carrier.Design) bool { return !slices.Contains(s.Designs, string(d)) })
		}
		if len(s.Workloads) > 0 {
			e.Patterns = slices.DeleteFunc(e.Patterns, func(p MemoryPattern) bool { return !slices.Contains(s.Workloads, p.Workload) })
		}
		p := PlannedMemory{MemoryExperiment: e}
		if p.Runs, err = e.Runs(ranks); err != nil {
			return nil, err
		}
		if len(p.Runs) > 0 {
			all = append(all, p)
		}
	}
	return all, nil
}
