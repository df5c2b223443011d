package work

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
)

// Launch runs a program as all ranks of a world, and returns when they have ended.
type Launch func(ranks int, o mpi.Options, program func(*mpi.World) error) error

// MemoryPoint is the memory of a workload with a design and a number of ranks.
type MemoryPoint struct {
	Workload string         `json:"workload"`
	Design   carrier.Design `json:"design"`
	// Rank0Only means that the values are those of rank 0 alone.
	Rank0Only bool `json:"one,omitempty"`
	Memory
}

// MemoryPattern is a workload whose memory is measured.
type MemoryPattern struct {
	Workload string
	Params   Params
	// MaxRanks limits the number of ranks: connections between all ranks exceed one machine
	// long before those of one rank do. 0: no limit.
	MaxRanks int
	// Rank0Only measures rank 0 alone.
	Rank0Only bool
}

// fullRanks is the largest number of ranks for all-to-all patterns, as published. Beyond,
// star shows the memory of one rank.
const fullRanks = 64

// MemoryPatterns returns the patterns of published curves: a constant number of partners, a
// logarithmic one, and all ranks.
func MemoryPatterns() []MemoryPattern {
	return []MemoryPattern{
		{Workload: "neighbours", Params: Params{Iterations: 20}},
		{Workload: "cg"},
		{Workload: "alltoall", Params: Params{Iterations: 20, Bytes: 1 << 10}, MaxRanks: fullRanks}, // too large for an indirect algorithm
		{Workload: "radix", Params: Params{Class: ClassS, Iterations: 1}, MaxRanks: fullRanks},
		{Workload: "smg", Params: Params{Iterations: 4}, MaxRanks: fullRanks},
		{Workload: "star", Params: Params{Iterations: 20}, Rank0Only: true},
	}
}

// MemoryRun is one run of a measurement.
type MemoryRun struct {
	MemoryPattern
	Design carrier.Design
	Ranks  int
}

// MemoryRuns returns the runs of patterns with every design and permitted number of ranks,
// in ascending order of ranks.
func MemoryRuns(patterns []MemoryPattern, designs []carrier.Design, ranks []int) (runs []MemoryRun, err error) {
	for _, p := range patterns {
		wl, err := Find(p.Workload)
		if err != nil {
			return nil, err
		}
		for _, n := range ranks {
			if wl.Check(n, p.Params) != nil || p.MaxRanks > 0 && n > p.MaxRanks {
				continue
			}
			for _, d := range designs {
				runs = append(runs, MemoryRun{p, d, n})
			}
		}
	}
	return runs, nil
}

func (r *MemoryRun) String() string {
	return fmt.Sprintf("%s with %s on %d ranks", r.Workload, r.Design, r.Ranks)
}

// Measure runs the workload in a new world with the run's design, and returns the memory that its
// ranks have used.
func (r *MemoryRun) Measure(start Launch, o mpi.Options) (MemoryPoint, error) {
	point := MemoryPoint{Workload: r.Workload, Design: r.Design, Rank0Only: r.Rank0Only}
	wl, err := Find(r.Workload)
	if err != nil {
		return point, err
	}
	o.Carrier.Design = r.Design
	err = start(r.Ranks, o, func(w *mpi.World) error {
		if _, err := wl.Run(w, r.Params); err != nil {
			return err
		}
		m, err := MemoryOf(w, r.Rank0Only)
		if w.Rank() == 0 {
			point.Memory = m
		}
		return err
	})
	if err != nil {
		return point, fmt.Errorf("%v: %w", r, err)
	}
	return point, nil
}
