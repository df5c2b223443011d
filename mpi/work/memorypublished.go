package work

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi/carrier"
)

// Configurations and experiments of published measurements, for comparison.

// ThesisMemory is the configuration of Thesis §6.6.2: 95 receives of 8 KB per connection,
// about 800 KB.
func ThesisMemory() carrier.Config {
	return carrier.Config{PacketSize: 8 << 10, Receives: 95}
}

// SurveyMemory is the configuration of Survey: a ring of 64 packets of 8 KB, about 500 KB,
// for every peer after 16 packets, 64 receives per connection without SRQ, and as many
// shared receives as fit 5 MB with everything else.
func SurveyMemory() carrier.Config {
	return carrier.Config{
		PacketSize: 8 << 10, Receives: 64, SharedReceives: 384,
		Ring: carrier.Ring{Slots: 64, SlotSize: 8 << 10, After: 16, Peers: 1 << 10},
	}
}

// MemoryExperiment is a memory measurement.
type MemoryExperiment struct {
	Name     string
	Config   carrier.Config
	Patterns []MemoryPattern
	Designs  []carrier.Design
	Ranks    []int // published numbers of ranks; nil: any
}

// Names of the experiments.
const (
	MemoryByRanks  = "curves" // all designs against the number of ranks
	MemoryOfThesis = "thesis" // connections and datagrams (Thesis Table 6.1)
	MemoryOfSurvey = "survey" // rings, and shared receives (Survey Table 1 and Fig. 4)
)

// MemoryExperiments returns the experiments: memory by the number of ranks, with the receives of
// ThesisMemory and the rings of SurveyMemory, and the published ones of Thesis and Survey.
func MemoryExperiments() []MemoryExperiment {
	byRanks := SurveyMemory()
	byRanks.Receives = ThesisMemory().Receives
	return []MemoryExperiment{
		{Name: MemoryByRanks, Config: byRanks, Patterns: MemoryPatterns(), Designs: carrier.Designs()},
		{
			Name: MemoryOfThesis, Config: ThesisMemory(), Designs: []carrier.Design{carrier.SendRecv, carrier.UD}, Ranks: []int{4, 16, 64},
			Patterns: []MemoryPattern{
				{Workload: "cg"},
				{Workload: "mg"},
				{Workload: "lu"},
				{Workload: "smg", Params: Params{Iterations: 4}},
				{Workload: "radix", Params: Params{Class: ClassS, Iterations: 1}},
			},
		},
		{
			Name: MemoryOfSurvey, Config: SurveyMemory(), Designs: []carrier.Design{carrier.RingSendRecv, carrier.RingSRQ, carrier.SRQ}, Ranks: []int{64},
			Patterns: []MemoryPattern{
				{Workload: "is", Params: Params{Class: ClassS}},
				{Workload: "ft", Params: Params{Class: ClassS}},
				{Workload: "bt", Params: Params{Class: ClassW, Iterations: 4}},
				{Workload: "sp", Params: Params{Class: ClassW, Iterations: 4}},
				{Workload: "cg"},
				{Workload: "mg", Params: Params{Class: ClassS}},
				{Workload: "lu"},
				{Workload: "superlu", Params: Params{Class: ClassS}},
				{Workload: "hpl", Params: Params{Class: ClassS}},
			},
		},
	}
}

// Runs returns the runs of an experiment for each of these numbers of ranks or, if the experiment
// is a published one, for those of its numbers that are among them.
func (e *MemoryExperiment) Runs(ranks []int) ([]MemoryRun, error) {
	if e.Ranks != nil {
		published := slices.Clone(e.Ranks)
		ranks = slices.DeleteFunc(published, func(n int) bool { return !slices.Contains(ranks, n) })
	}
	return MemoryRuns(e.Patterns, e.Designs, ranks)
}
