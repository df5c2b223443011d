// Package ranks is what the runtime of many ranks leaves behind: what the ranks of a
// run did and what it took, and how much memory its designs need, as JSON and as one
// page. It runs nothing and judges nothing: whoever ran the ranks fills it in.
//
// A Run is plain data. Nothing here changes one that it is given, and any number of
// goroutines may write the same one at a time.
package ranks

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report"
)

// Version is that of the layout of ranks.json.
const Version = 1

// Run is one call of the program.
type Run struct {
	Version int            `json:"version"` // of this layout
	Tool    string         `json:"tool"`    // fabrictest's own version
	Command string         `json:"command"` // that repeats it
	Seed    uint64         `json:"seed"`
	Started time.Time      `json:"started"`
	Wall    time.Duration  `json:"wall_ns"` // how long it took, on the clock of the wall
	Machine report.Machine `json:"machine"`
	// Job is what was run with 'fabrictest mpirun'.
	Job *Job `json:"job,omitempty"`
	// Memory is what was measured with 'fabrictest perf memory'.
	Memory []Experiment `json:"memory,omitempty"`
}

// Job is a program on some ranks, and what they did.
type Job struct {
	Program  string `json:"program"` // with its arguments
	Ranks    int    `json:"ranks"`
	PerHost  int    `json:"per_host"`
	Rails    int    `json:"rails"`
	Tier     string `json:"tier"`
	Provider string `json:"provider"`
	Design   string `json:"design,omitempty"` // as it was asked for; empty: what suits the NICs
	Protocol string `json:"protocol"`
	Progress string `json:"progress"`
	LossPPM  uint32 `json:"loss_ppm,omitempty"`
	Code     int    `json:"code"` // that it ended with
	// Stats are by rank; nil of one that handed in none.
	Stats []*Stats `json:"stats"`
}

// Stats are what a rank reports: mpi.Stats, as JSON brings it here.
type Stats struct {
	P2P           p2p.Stats
	Window        window.Stats
	NeverReceived uint64
	Carrier       carrier.Stats
}

// Experiment is memory by design, pattern and number of ranks, all with one
// configuration.
type Experiment struct {
	Name   string             `json:"name"` // one of package work
	Config carrier.Config     `json:"config"`
	Points []work.MemoryPoint `json:"points"`
}

// reported are the statistics that there are.
func (j *Job) reported() (all []*Stats) {
	for _, s := range j.Stats {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

// point finds what was measured.
func (e *Experiment) point(workload string, d carrier.Design, ranks int) *work.MemoryPoint {
	for i := range e.Points {
		if p := &e.Points[i]; p.Workload == workload && p.Design == d && p.Ranks == ranks {
			return p
		}
	}
	return nil
}

// experiment finds one by its name.
func (r *Run) experiment(name string) *Experiment {
	for i := range r.Memory {
		if r.Memory[i].Name == name {
			return &r.Memory[i]
		}
	}
	return nil
}
