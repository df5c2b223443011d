// Package ranks holds the results of MPI jobs and of memory measurements of the designs,
// and writes them as JSON and as one page. The commands that run them fill in a Run; this
// package neither runs nor judges anything.
//
// A Run is plain data. Functions do not modify their arguments, and may be called
// concurrently.
package ranks

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report"
)

// Version is the version of the layout of ranks.json.
const Version = 1

// Run is one call of the program.
type Run struct {
	Version int            `json:"version"` // version of this layout
	Tool    string         `json:"tool"`    // version of fabrictest
	Command string         `json:"command"` // the command that repeats the run
	Seed    uint64         `json:"seed"`
	Started time.Time      `json:"started"`
	Wall    time.Duration  `json:"wall_ns"` // wall-clock time
	Machine report.Machine `json:"machine"`
	// Job is the result of 'fabrictest mpirun'.
	Job *Job `json:"job,omitempty"`
	// Memory are the results of 'fabrictest perf memory'.
	Memory []Experiment `json:"memory,omitempty"`
}

// Job is an MPI job and its statistics.
type Job struct {
	Program  string `json:"program"` // program with arguments
	Ranks    int    `json:"ranks"`
	PerHost  int    `json:"per_host"`
	Rails    int    `json:"rails"`
	Tier     string `json:"tier"`
	Provider string `json:"provider"`
	Design   string `json:"design,omitempty"` // requested design; empty: chosen by the NICs
	Protocol string `json:"protocol"`
	Progress string `json:"progress"`
	LossPPM  uint32 `json:"loss_ppm,omitempty"`
	Code     int    `json:"code"` // exit code
	// Stats are by rank; nil for a rank without statistics.
	Stats []*Stats `json:"stats"`
}

// Stats are the statistics of a rank: mpi.Stats, decoded from JSON.
type Stats struct {
	P2P           p2p.Stats
	Window        window.Stats
	NeverReceived uint64
	Carrier       carrier.Stats
}

// Experiment has memory by design, pattern and number of ranks, for one configuration.
type Experiment struct {
	Name   string             `json:"name"` // name in package work
	Config carrier.Config     `json:"config"`
	Points []work.MemoryPoint `json:"points"`
}

// reported returns the statistics that are not nil.
func (j *Job) reported() (all []*Stats) {
	for _, s := range j.Stats {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

// point returns a measurement; nil if there is none.
func (e *Experiment) point(workload string, d carrier.Design, ranks int) *work.MemoryPoint {
	for i := range e.Points {
		if p := &e.Points[i]; p.Workload == workload && p.Design == d && p.Ranks == ranks {
			return p
		}
	}
	return nil
}

// experiment returns an experiment by name; nil if there is none.
func (r *Run) experiment(name string) *Experiment {
	for i := range r.Memory {
		if r.Memory[i].Name == name {
			return &r.Memory[i]
		}
	}
	return nil
}
