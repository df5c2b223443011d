package lab

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/scenarios"
)

// Options are those of one run of one scenario.
type Options struct {
	// Seed decides what happens by chance; 0 means the scenario's own.
	Seed uint64
	// Dir is the folder of the run, which must exist; files go into a folder of
	// the scenario's in it, see Folder. Empty means that none are written.
	Dir string
	// Capture writes what the hosts send and receive to pcapng files, compressed.
	Capture bool
	// Quirks are given to every NIC besides those that the scenario names.
	Quirks []string
	// Replay is the command that repeats the run, for its files and its result.
	Replay string
	// Netem has the kernel's netem do in namespaces what packets meet by chance,
	// instead of the user-space switch: faster, and not the same for the same seed.
	// What netem cannot do is an error, and so is a kernel without it.
	Netem bool
	// Ask, if not nil, makes a run in namespaces tell State what each rank is at,
	// every time that something is received from it.
	Ask   <-chan struct{}         `json:"-"`
	State func(state []RankState) `json:"-"`
	// Progress, if not nil, is told now and then how the run is getting on, always
	// from the goroutine that runs it.
	Progress func(Progress) `json:"-"`
}

// RankState is what a rank says of itself while it runs.
type RankState struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	State string `json:"state"`
}

// Progress is how far a run has come.
type Progress struct {
	At       time.Duration // of the scenario's own time
	Messages uint64        // delivered to all ranks
	Bytes    uint64
	Ranks    int // that have ended
	Of       int
}

// defaultSeed is that of a scenario which names none.
const defaultSeed = 1

// SeedFor returns the seed that a run of s has.
func (o *Options) SeedFor(s *scenarios.Scenario) uint64 {
	switch {
	case o.Seed != 0:
		return o.Seed
	case s.Seed != 0:
		return s.Seed
	}
	return defaultSeed
}

// Folder is where the files of a scenario on a tier go, as a path in Dir.
func (o *Options) Folder(s *scenarios.Scenario, tier scenarios.Tier) string {
	return fmt.Sprintf("%s-%s", s.Name, tier)
}
