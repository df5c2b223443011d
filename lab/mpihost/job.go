package mpihost

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// WorldVar is the environment variable with the Job, as JSON, of a process that
// runs all ranks of a simulation. Without it a process is one rank, and gets its
// Job from the launcher.
const WorldVar = "FABRICTEST_MPI_WORLD"

// Job is the configuration of ranks.
type Job struct {
	Ranks   int `json:"ranks"`
	PerHost int `json:"per_host"`
	Rails   int `json:"rails"`
	// Provider is the name in package nics. ICRCOffloaded leaves out the ICRC of
	// RoCE.
	Provider      string `json:"provider"`
	ICRCOffloaded bool   `json:"offloaded,omitempty"`
	// MTU is that of every cable, and LossPPM its random loss.
	MTU     int    `json:"mtu,omitempty"`
	LossPPM uint32 `json:"loss_ppm,omitempty"`
	Seed    uint64 `json:"seed"`
	// Limit is the maximum duration, in virtual time in a simulation; 0 means an
	// hour there, and none in namespaces.
	Limit time.Duration `json:"limit,omitempty"`
	// Options are those of the runtime; mpihost does not read them.
	Options json.RawMessage `json:"options,omitempty"`
	// Reports asks the ranks for reports (Process.Report).
	Reports bool `json:"reports,omitempty"`
	// ReportFD is the descriptor for the reports of a simulation, which first
	// writes ReportStarted; 0 for none.
	ReportFD int `json:"report_file,omitempty"`

	// Rank is set for a process that is one rank.
	Rank *RankJob `json:"rank,omitempty"`
}

// RankJob is the additional configuration of a rank in a process.
type RankJob struct {
	NICs []NICJob `json:"nics"`
	// SharedFD is the descriptor of the shared memory of its host
	// (NewSharedMemory); 0 for none.
	SharedFD int `json:"shared,omitempty"`
	// CPU is the CPU of the rank, counted from 1; 0 for any.
	CPU int `json:"cpu,omitempty"`
	// StartTime is time 0 of all ranks.
	StartTime time.Time `json:"began"`
}

// NICJob is a NIC of the host, with an address for this rank only.
type NICJob struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"addr"`
}

// fabric returns the Fabric of a Job, without defaults.
func (j *Job) fabric() Fabric {
	f := Fabric{
		Ranks: j.Ranks, PerHost: j.PerHost, Rails: j.Rails, Provider: j.Provider,
		Link: sim.LinkConfig{MTU: j.MTU}, Seed: j.Seed, Limit: j.Limit,
	}
	if j.ICRCOffloaded {
		f.Setup.Options = nics.Options{"icrc": false}
	}
	if j.LossPPM > 0 {
		f.Impair = []impair.Spec{{LossPPM: j.LossPPM}}
	}
	return f
}

// Check returns an error if the fabric, the settings of its NICs or the topology are invalid.
func (j *Job) Check() error {
	f, provider, err := j.fabric().withDefaults()
	if err != nil {
		return err
	}
	if _, err := provider.NewOpener(f.Setup); err != nil {
		return err
	}
	_, err = f.topology()
	return err
}

// ReportStarted stands in for a rank in the first Report of a simulation: the program has
// called Join.
const ReportStarted = -1

// Report is the final report of a rank in a simulation.
type Report struct {
	Rank int             `json:"rank"`
	Text json.RawMessage `json:"text,omitempty"`
}

// parseJob parses the JSON of a Job; an empty text is an error.
func parseJob(text []byte) (*Job, error) {
	j := new(Job)
	if len(text) == 0 {
		return nil, errors.New("this program was not started by 'fabrictest mpirun'")
	}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("the job from 'fabrictest mpirun': %w", err)
	}
	return j, nil
}
