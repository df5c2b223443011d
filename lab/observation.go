package lab

import (
	"time"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// Observation is the data that a tier collects during a run.
type Observation struct {
	Plan *Plan
	Tier scenarios.Tier
	// Elapsed is the duration of the run, in virtual time on the sim tier.
	Elapsed time.Duration
	Ranks   []Rank
	// Links are the counters of both directions of every cable.
	Links []report.Link
	// Steps are the executed steps of the plan, with the actual times.
	Steps []ExecutedStep
	// Events counts the occurrences of each event of the scenario, over all
	// directions.
	Events []uint64
	// EventErrors are events that could not be executed.
	EventErrors []string
	// AbortReason is why the run was stopped before its programs ended: a deadlock,
	// or a limit. Empty if it was not.
	AbortReason string
	// Scheduling is the CPU time that the run got; nil in virtual time.
	Scheduling *report.Scheduling
}

// Rank is the data about one rank.
type Rank struct {
	Rank int
	Host string
	// State is one of the constants below.
	State string
	// Err is the error of the program. Timeout is true if it waited too long, or
	// for a rank that had ended.
	Err     error
	Timeout bool
	// Report is the report of the program; nil if there is none.
	Report  *workload.Report
	Samples []workload.Sample
	Marks   []report.Mark
	// Counters are those of the rank's NICs, if the tier reads them; nil means
	// those of Report.
	Counters []verbs.Counter
	// MemoryKiB is the maximum resident set size; 0 if it was not measured.
	MemoryKiB int64
	ExitCode  *int
	Signal    string
	// Waiting is the state of the program when the run was stopped.
	Waiting string
}

// The final states of a rank.
const (
	Finished = "finished"
	Errored  = "failed" // its program returned an error
	Killed   = "killed" // by a fault of the scenario
	Exited   = "exited" // its process ended without a result
	Hung     = "hung"   // it was running when the run was stopped
)

// ExecutedStep is a step and the time at which it was executed.
type ExecutedStep struct {
	*Step
	At time.Duration
}

// counters returns the counters of the rank's NICs.
func (r *Rank) counters() []verbs.Counter {
	if r.Counters == nil && r.Report != nil {
		return r.Report.Counters
	}
	return r.Counters
}

// retransmits returns the number of packets that the rank's NICs retransmitted.
func (o *Observation) retransmits(r *Rank) (sum uint64) {
	for _, c := range r.counters() {
		if c.Name == o.Plan.Provider.RetransmitCounter {
			sum += c.Value
		}
	}
	return sum
}

// CountEvents adds the occurrences of the events of one direction of a port to Events. fired has
// them in the order of m.Config.Events.
func (o *Observation) CountEvents(m *Impairments, fired []uint64) {
	o.allocEvents()
	for i, n := range fired {
		o.Events[m.EventIndexes[i]] += n
	}
}

// allocEvents makes Events, with a counter for each event of the scenario.
func (o *Observation) allocEvents() {
	if o.Events == nil {
		o.Events = make([]uint64, len(o.Plan.Scenario.Events))
	}
}
