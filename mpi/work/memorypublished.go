package work

import "github.com/fabrictest/fabrictest/mpi/carrier"

// How ranks are equipped in what was published, and what was found there. Who measures
// the same here has something to hold it against.

// ThesisMemory is how a connection is equipped in Thesis §6.6.2: with 95 receives of 8 KB,
// about 800 KB.
func ThesisMemory() carrier.Config {
	return carrier.Config{PacketSize: 8 << 10, Receives: 95}
}

// SurveyMemory is how the designs of Survey are equipped: a ring of 64 packets of 8 KB, about
// 500 KB, for every peer that 16 packets have come from, 64 receives of connections that
// have their own, and as many shared ones as 5 MB have room for with everything else.
func SurveyMemory() carrier.Config {
	return carrier.Config{
		PacketSize: 8 << 10, Receives: 64, SharedReceives: 384,
		Ring: carrier.Ring{Slots: 64, SlotSize: 8 << 10, After: 16, Peers: 1 << 10},
	}
}

// MemoryExperiment is something that memory is measured for.
type MemoryExperiment struct {
	Name     string
	Config   carrier.Config
	Patterns []MemoryPattern
	Designs  []carrier.Design
	Ranks    []int // at which it was published; nil: any
}

// The names of the experiments.
const (
	MemoryByRanks  = "curves" // all designs against the number of ranks
	MemoryOfThesis = "thesis" // connections and datagrams (Thesis Table 6.1)
	MemoryOfSurvey = "survey" // rings, and shared receives (Survey Table 1 and Fig. 4)
)

// MemoryExperiments are those that there are.
func MemoryExperiments() []MemoryExperiment {
	both := SurveyMemory()
	both.Receives = ThesisMemory().Receives
	return []MemoryExperiment{
		{Name: MemoryByRanks, Config: both, Patterns: MemoryPatterns(), Designs: carrier.Designs()},
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

// Runs are what an experiment takes, with ranks of a list; those at which something was
// published, if there are any.
func (e *MemoryExperiment) Runs(ranks []int) ([]MemoryRun, error) {
	if e.Ranks != nil {
		ranks = both(e.Ranks, ranks)
	}
	return MemoryRuns(e.Patterns, e.Designs, ranks)
}

// both are the numbers that are in either list.
func both(a, b []int) (all []int) {
	for _, n := range a {
		for _, m := range b {
			if n == m {
				all = append(all, n)
			}
		}
	}
	return all
}
