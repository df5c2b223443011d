package lab

import (
	"fmt"
	"os"
	"time"

	"github.com/fabrictest/fabrictest/scenarios"
)

// Options are the options of one run of one scenario.
type Options struct {
	// Seed is the seed of all random choices; 0 means the scenario's seed.
	Seed uint64
	// Dir is an existing directory for the files of the run, which go into its
	// subdirectory Folder. Empty means that no files are written.
	Dir string
	// Capture writes the packets of the hosts to compressed pcapng files.
	Capture bool
	// Defects are defects for every NIC, in addition to those of the scenario.
	Defects []string
	// Replay is the command that repeats the run. It is written to the files and
	// the result.
	Replay string
	// Netem uses the kernel's netem for random impairments in namespaces, instead
	// of the user-space switch. It is faster, but not repeatable with the same
	// seed. An impairment that netem lacks is an error.
	Netem bool
	// Each receive from StateRequests makes a run in namespaces call OnState with
	// the current state of all ranks.
	StateRequests <-chan os.Signal        `json:"-"`
	OnState       func(state []RankState) `json:"-"`
	// OnProgress, if not nil, is called from time to time by the goroutine of the
	// run.
	OnProgress func(Progress) `json:"-"`
}

// RankState is the state of a rank that runs, as text of its program.
type RankState struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	State string `json:"state"`
}

// Progress is the progress of a run.
type Progress struct {
	At         time.Duration // time of the scenario
	Messages   uint64        // received by all ranks
	Bytes      uint64
	RanksEnded int
	RanksTotal int
}

// defaultSeed is the seed if neither the options nor the scenario have one.
const defaultSeed = 1

// SeedFor returns the seed of a run of s.
func (o *Options) SeedFor(s *scenarios.Scenario) uint64 {
	switch {
	case o.Seed != 0:
		return o.Seed
	case s.Seed != 0:
		return s.Seed
	}
	return defaultSeed
}

// Folder returns the subdirectory of Dir for the files of a scenario on a tier.
func (o *Options) Folder(s *scenarios.Scenario, tier scenarios.Tier) string {
	return fmt.Sprintf("%s-%s", s.Name, tier)
}
