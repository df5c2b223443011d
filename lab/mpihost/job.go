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

// WorldVar is the environment variable that has a process be all ranks of a simulated
// world: its value is a Job, as JSON. Without it a process is one rank, and its
// launcher (package launch) has the Job for it.
const WorldVar = "FABRICTEST_MPI_WORLD"

// Job is what ranks are started with.
type Job struct {
	Ranks   int `json:"ranks"`
	PerHost int `json:"per_host"`
	Rails   int `json:"rails"`
	// Provider is one of package nics; Offloaded leaves out RoCE's ICRC.
	Provider  string `json:"provider"`
	Offloaded bool   `json:"offloaded,omitempty"`
	// MTU is the largest IP packet of every cable, and LossPPM how many of a million
	// are lost on each.
	MTU     int    `json:"mtu,omitempty"`
	LossPPM uint32 `json:"loss_ppm,omitempty"`
	Seed    uint64 `json:"seed"`
	// Limit ends a run that takes longer, in its own time; an hour if 0 in a simulated
	// world, and never in namespaces.
	Limit time.Duration `json:"limit,omitempty"`
	// Options are the runtime's; mpihost does not look at them.
	Options json.RawMessage `json:"options,omitempty"`
	// Reports asks the ranks for theirs (Process.Report).
	Reports bool `json:"reports,omitempty"`
	// ReportFile is the descriptor on which a simulated world hands them in, and says
	// before that it has understood what it is (Begun); 0 if nobody listens.
	ReportFile int `json:"report_file,omitempty"`

	// Rank is for a process that is one rank.
	Rank *RankJob `json:"rank,omitempty"`
}

// RankJob is what a rank in a process of its own must know besides.
type RankJob struct {
	NICs []NICJob `json:"nics"`
	// Shared is the descriptor of the memory of its host (NewShared); 0 for none.
	Shared int `json:"shared,omitempty"`
	// CPU is the processor that the rank keeps to, counted from 1; any if 0.
	CPU int `json:"cpu,omitempty"`
	// Began is when the run did: what ranks count their time from.
	Began time.Time `json:"began"`
}

// NICJob is a NIC to be opened: of the host, at an address that is the rank's own.
type NICJob struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"addr"`
}

// setup is how NICs are opened.
func (j *Job) setup() nics.Setup { return nics.Setup{ICRCOffloaded: j.Offloaded} }

// fabric is the world that a Job asks for.
func (j *Job) fabric() Fabric {
	f := Fabric{
		Ranks: j.Ranks, PerHost: j.PerHost, Rails: j.Rails, Provider: j.Provider, Setup: j.setup(),
		Link: sim.LinkConfig{MTU: j.MTU}, Seed: j.Seed, Limit: j.Limit,
	}
	if j.LossPPM > 0 {
		f.Impair = []impair.Spec{{LossPPM: j.LossPPM}}
	}
	return f
}

// Check says what is wrong with a job, before anything is started.
func (j *Job) Check() error {
	f, p, err := j.fabric().normal()
	if err != nil {
		return err
	}
	if _, err := p.With(f.Setup); err != nil {
		return err
	}
	_, err = f.draw()
	return err
}

// Begun is the rank in the first Report of a simulated world, which is empty: the
// program has asked what it is to be.
const Begun = -1

// Report is what a rank has to say at its end, as a simulated world hands it in.
type Report struct {
	Rank int             `json:"rank"`
	Text json.RawMessage `json:"text,omitempty"`
}

func parseJob(text []byte) (*Job, error) {
	j := new(Job)
	if len(text) == 0 {
		return nil, errors.New("this program was not started by 'fabrictest mpirun', and does not know what to be")
	}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("the job from 'fabrictest mpirun': %w", err)
	}
	return j, nil
}
