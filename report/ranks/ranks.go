// Package ranks holds the results of MPI jobs and of memory measurements of the designs,
// and writes them as JSON and as one page. The commands that run them fill in a Run; this
// package neither runs nor judges anything.
//
// A Run is plain data. Functions do not modify arguments, and may be called concurrently.
package ranks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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

// NewRun returns a run of this program without results, with the version of fabrictest and a
// description of this machine. command is the command that repeats the run.
func NewRun(command string, seed uint64, started time.Time) *Run {
	return &Run{Version: Version, Tool: report.ToolVersion(), Command: command, Seed: seed, Started: started, Machine: report.ThisMachine()}
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
	// Stats are the statistics by rank, mpi.Stats in JSON; nil for a rank without.
	Stats []Values `json:"stats"`
	// Arrivals is the imbalance of arrivals at collective operations, if it was recorded.
	Arrivals []Arrivals `json:"arrivals,omitempty"`
}

// Values are numbers by name, as a component of the MPI runtime writes them in JSON: objects,
// lists and numbers. This package does not link the runtime; it knows the names only.
type Values map[string]any

// ValuesOf encodes a struct as JSON and returns the object.
func ValuesOf(from any) (v Values, err error) {
	text, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &v)
	return v, err
}

// Count returns the number at a path of keys and indexes such as "P2P.Sent.0.Messages"; 0 if
// it is missing or negative.
func (v Values) Count(path string) uint64 {
	var at any = map[string]any(v)
	for key := range strings.SplitSeq(path, ".") {
		var value any
		switch in := at.(type) {
		case map[string]any:
			value = in[key]
		case []any:
			if i, err := strconv.Atoi(key); err == nil && 0 <= i && i < len(in) {
				value = in[i]
			}
		}
		at = value
	}
	n, _ := at.(float64)
	return uint64(max(n, 0))
}

// Experiment has memory by design, workload and number of ranks, for one configuration.
type Experiment struct {
	Name   string  `json:"name"`   // curves, thesis or survey
	Config Values  `json:"config"` // configuration of the carriers
	Points []Point `json:"points"`
}

// Point is the communication memory of the ranks that run a workload with a design.
type Point struct {
	Workload string `json:"workload"`
	Design   string `json:"design"`
	// Rank0Only means that the values are those of rank 0 alone.
	Rank0Only bool   `json:"one,omitempty"`
	Ranks     int    `json:"ranks"`
	Kinds     []Kind `json:"kinds"`
	Bytes     Spread `json:"bytes"` // sum of all kinds
	// Connections is the largest number of connections of a rank, and Rings the number of
	// rings that peers write to.
	Connections Spread `json:"connections"`
	Rings       Spread `json:"rings"`
	// LowWatermarks is how often shared receives reached the low watermark.
	LowWatermarks Spread `json:"low_watermarks"`
	// Messages is the number of messages sent, and Unexpected the share of them that
	// arrived before their receives.
	Messages   uint64  `json:"messages"`
	Unexpected float64 `json:"unexpected"`
}

// Kind is the largest size of a kind of memory.
type Kind struct {
	Name  string `json:"name"`
	Bytes Spread `json:"bytes"`
}

// Spread is the mean and the maximum over ranks.
type Spread struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
}

// Names in the order of the runtime's numbers.
var (
	designs     = []string{"sendrecv", "srq", "ring-sendrecv", "ring-srq", "ud", "hybrid"}
	transports  = []string{"connection", "ring", "datagrams", "shared memory", "itself", "multicast"}
	memoryKinds = []string{"send buffers", "receives of connections", "shared receives", "receives of datagrams", "rings", "shared segments"}
)

// memoryOf returns the maximum bytes of each of memoryKinds in a rank's statistics, and their sum.
func memoryOf(stats Values) (kinds []uint64, sum uint64) {
	for k := range memoryKinds {
		n := stats.Count(fmt.Sprint(memoryBytes, k)) // such as "Carrier.memory.max.0"
		kinds, sum = append(kinds, n), sum+n
	}
	return kinds, sum
}

// reported returns the statistics of the ranks that have some.
func reported(stats []Values) []Values {
	return slices.DeleteFunc(slices.Clone(stats), func(s Values) bool { return s == nil })
}

// point returns the point of a workload, design and number of ranks; nil if it was not measured.
func (e *Experiment) point(workload, design string, ranks int) *Point {
	for i := range e.Points {
		if p := &e.Points[i]; p.Workload == workload && p.Design == design && p.Ranks == ranks {
			return p
		}
	}
	return nil
}

// experiment returns a measurement of memory by name; nil if there is none.
func (r *Run) experiment(name string) *Experiment {
	for i := range r.Memory {
		if r.Memory[i].Name == name {
			return &r.Memory[i]
		}
	}
	return nil
}
