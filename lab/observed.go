package lab

import (
	"time"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// Observed is what a tier saw of a run.
type Observed struct {
	Plan *Plan
	Tier scenarios.Tier
	// Elapsed is how long the run took, in the tier's own time.
	Elapsed time.Duration
	Ranks   []Rank
	// Links count both directions of every cable.
	Links []report.Link
	// Steps are those of the plan that were done, with the times at which they
	// really were.
	Steps []Done
	// Events counts how often each event of the scenario happened, on all the
	// directions that it names together.
	Events []uint64
	// EventErrors are events that could not do what they say.
	EventErrors []string
	// Hung says why the run was ended before its programs were: a deadlock, or a
	// limit. Empty if it was not.
	Hung string
	// Scheduling is how much of the processors the run got; nil where time is virtual.
	Scheduling *report.Scheduling
}

// Rank is what was seen of one rank.
type Rank struct {
	Rank int
	Host string
	// State is one of those below.
	State string
	// Err is what kept its program from going on; Timeout says that it waited too long
	// for something, or for a rank that had ended.
	Err     error
	Timeout bool
	// Report is the program's own; nil if none came.
	Report  *workload.Report
	Samples []workload.Sample
	Marks   []report.Mark
	// Counters are those of the rank's NICs, where the tier can read them itself;
	// nil means those of the Report.
	Counters []verbs.Counter
	// MemoryKiB is the most that the rank's process had resident; 0 where it was
	// not measured.
	MemoryKiB int64
	ExitCode  *int
	Signal    string
	// Waiting is what the rank was at when the run was ended.
	Waiting string
}

// The states in which a rank ends.
const (
	Finished = "finished"
	Errored  = "failed" // its program returned an error
	Killed   = "killed" // by a fault of the scenario
	Exited   = "exited" // its process ended by itself, without a result
	Hung     = "hung"   // it was still at work when the run was ended
)

// Done is a step that was done.
type Done struct {
	*Step
	At time.Duration
}

// counters returns what the rank's NICs counted.
func (r *Rank) counters() []verbs.Counter {
	if r.Counters == nil && r.Report != nil {
		return r.Report.Counters
	}
	return r.Counters
}

func (r *Rank) counter(name string) (sum uint64) {
	for _, c := range r.counters() {
		if c.Name == name {
			sum += c.Value
		}
	}
	return sum
}

// resent is how many packets the rank's NICs sent again, where they know.
func (o *Observed) resent(r *Rank) uint64 { return r.counter(o.Plan.Provider.Resent) }

// CountEvents adds how often the events of one direction of a port happened, in
// the order of its Config, to those of the scenario.
func (o *Observed) CountEvents(m *Impairments, fired []uint64) {
	o.makeEvents()
	for i, n := range fired {
		o.Events[m.Numbers[i]] += n
	}
}

func (o *Observed) makeEvents() {
	if o.Events == nil {
		o.Events = make([]uint64, len(o.Plan.Scenario.Events))
	}
}
