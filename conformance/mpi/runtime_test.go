package mpi_test

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/verbs"
)

// everywhere runs every case on all set-ups, which takes long. By default a case runs on often
// set-ups of one provider, which differ from case to case.
var (
	everywhere = flag.Bool("everywhere", false, "run every case on every provider, design, protocol, mode of progress and network")
	often      = flag.Int("often", 1, "on how many set-ups of its provider a case runs")
	part       = testutil.PartFlag()
	worldSeed  = flag.Uint64("seed", 1, "the seed of simulated worlds")
)

// match selects cases for the runs that have all cases in one world.
var match = flag.String("match", "", "in worlds that run one case after the other, run those whose IDs match this")

// only is a name of a set-up, as in failures, or a part of it.
var only = flag.String("setup", "", "run every case on the set-ups whose names contain this")

// setup is the configuration of a run.
type setup struct {
	provider string
	design   carrier.Design
	protocol p2p.Protocol
	progress mpi.ProgressMode
	network  string
	// eager is mpi.Options.P2P.EagerLimit; hosts is one of layouts.
	eager int
	hosts string
	// byTarget makes targets execute accumulates even if NICs have atomics.
	byTarget bool
}

func (s setup) String() string {
	by := ""
	if s.byTarget {
		by = ", no atomics"
	}
	return fmt.Sprintf("%s %s %v %v %s, eager %d, %s%s", s.provider, s.design, s.protocol, s.progress, s.network, s.eager, s.hosts, by)
}

// networks are the impairments of the cables. TCP repairs losses; a case only sees the delay.
var networks = map[string][]impair.Spec{
	"clean":      nil,
	"loss":       {{LossPPM: 10_000}},
	"reordering": {{ReorderPPM: 50_000, ReorderDelay: 30 * time.Microsecond}},
	"duplicates": {{DuplicatePPM: 50_000, DuplicateDelay: 10 * time.Microsecond}},
	"all":        {{LossPPM: 10_000, ReorderPPM: 50_000, ReorderDelay: 30 * time.Microsecond, DuplicatePPM: 50_000, DuplicateDelay: 10 * time.Microsecond}},
}

var (
	providers = nics.All()
	protocols = []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative}
	modes     = []mpi.ProgressMode{mpi.Polling, mpi.Background}
	eagers    = []int{0, -1, 40_000}
	layouts   = []string{"a host each", "two a host", "two rails", "two a host and two rails"}
)

// setups returns all combinations.
func setups() (all []setup) {
	for _, provider := range providers {
		for _, design := range carrier.Designs() {
			for _, protocol := range protocols {
				for _, mode := range modes {
					for _, network := range []string{"clean", "loss", "reordering", "duplicates", "all"} {
						if !hasDesign(provider, design) || provider.OverTCP && network != "clean" && network != "loss" {
							continue // TCP hides duplicates and reordering
						}
						k := len(all) // the last three vary, but are not combined with all others
						all = append(all, setup{provider.Name, design, protocol, mode, network, eagers[k%3], layouts[k/3%4], k/12%2 == 1})
					}
				}
			}
		}
	}
	return all
}

// datagrams reports whether a design needs UD.
func datagrams(d carrier.Design) bool { return d == carrier.UD || d == carrier.Hybrid }

// hasDesign reports whether NICs of a provider support a design.
func hasDesign(p *nics.Provider, d carrier.Design) bool {
	return p.Caps.Has(verbs.CapUD) || !datagrams(d)
}

// options returns the options of the runtime.
func (s setup) options() mpi.Options {
	return mpi.Options{
		Carrier:  carrier.Config{Design: s.design},
		P2P:      p2p.Config{Protocol: s.protocol, Adaptive: s.protocol == p2p.Speculative, EagerLimit: s.eager},
		Progress: s.progress,
		Window:   window.Config{ByTarget: s.byTarget},
	}
}

// on runs a case on a set-up in a simulated world.
func on(c cases.Case, s setup, seed uint64) error {
	return run(s, c.Setup.Ranks, c.Setup.PerNode, seed, func(w cases.World) error { return cases.RunOn(&c, w) })
}

// run runs a program on all ranks.
func run(s setup, ranks, perHost int, seed uint64, program func(cases.World) error) error {
	rails := 1
	if strings.Contains(s.hosts, "two rails") {
		rails = 2
	}
	if perHost == 0 && strings.Contains(s.hosts, "two a host") {
		perHost = 2
	}
	f := mpihost.Fabric{
		Ranks: ranks, PerHost: perHost, Rails: rails, Provider: s.provider, Seed: seed,
		Impair: networks[s.network], Limit: 10 * time.Minute,
	}
	out, err := mpihost.InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, s.options(), func(w *mpi.World) error { return program(cases.On(w)) })
	})
	// The first failure says most; those of other ranks follow.
	var first *mpihost.RankError
	errors.As(err, &first)
	errs := []error{err}
	for k, r := range out.Ranks {
		if r.Err != nil && (first == nil || first.Rank != k) {
			errs = append(errs, fmt.Errorf("later failure of rank %d: %w", k, r.Err))
		}
	}
	return errors.Join(errs...)
}
