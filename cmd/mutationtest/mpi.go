package main

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// Values of -cases.
const (
	suiteDevices = "devices"
	suiteMPI     = "mpi"
	suiteNone    = "none"
)

// mpiConfigs are configurations of the MPI runtime that together use all of its protocols. Each has
// another limit of eager messages; the small one mixes eager messages with speculative ones.
var mpiConfigs = []struct {
	name, provider string
	perHost        int
	options        mpi.Options
}{
	{"srq-rget", "softroce", 2, mpi.Options{Carrier: carrier.Config{Design: carrier.SRQ}, P2P: p2p.Config{Protocol: p2p.RGET, EagerLimit: -1}, Progress: mpi.Background}},
	{"ring-speculative", "softroce", 1, mpi.Options{
		Carrier: carrier.Config{Design: carrier.RingSRQ}, P2P: p2p.Config{Protocol: p2p.Speculative, Adaptive: true, Usage: 0.2, EagerLimit: 64}, Progress: mpi.Background,
	}},
	{"hybrid-rput", "dgiwarp", 1, mpi.Options{
		Carrier: carrier.Config{Design: carrier.Hybrid}, P2P: p2p.Config{Protocol: p2p.RPUT, EagerLimit: 40_000}, Window: window.Config{ByTarget: true},
	}},
}

// mpiTrials returns a trial (a case on a configuration) for each MPI case and each of mpiConfigs
// that can run it.
func mpiTrials() (all []*trial) {
	list := cases.Cases()
	for i := range mpiConfigs {
		config := &mpiConfigs[i]
		for k := range list {
			c := &list[k]
			if config.options.Progress == mpi.Polling && cases.NeedsBackground(c) {
				continue
			}
			const limit = 30 * time.Second // of simulated time; no case needs half of it
			f := mpihost.Fabric{Ranks: c.Setup.Ranks, PerHost: max(c.Setup.PerNode, config.perHost), Rails: 1, Provider: config.provider, Seed: 1, Limit: limit}
			all = append(all, &trial{Device: config.name, Case: c.ID, run: func() conformance.Verdict {
				_, err := mpihost.InWorld(f, func(e *transport.Env) error {
					return mpi.Run(e, config.options, func(w *mpi.World) error { return cases.RunOn(c, cases.On(w)) })
				})
				if err != nil {
					return conformance.VerdictFail
				}
				return conformance.VerdictPass
			}})
		}
	}
	return all
}
