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
	isSelected := func(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
	for _, e := range MemoryExperiments() {
		e.Designs = slices.DeleteFunc(e.Designs, func(d carrier.Design) bool { return !isSelected(s.Designs, string(d)) })
		e.Patterns = slices.DeleteFunc(e.Patterns, func(p MemoryPattern) bool { return !isSelected(s.Workloads, p.Workload) })
		runs, err := e.Runs(ranks)
		if err != nil {
			return nil, err
		}
		if isSelected(s.Experiments, e.Name) && len(runs) > 0 {
			all = append(all, PlannedMemory{e, runs})
		}
	}
	return all, nil
}
