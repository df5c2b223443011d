package workload_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// campaign is the number of seeds of TestRandomFaultsWithReconnect.
var campaign = flag.Uint64("campaign", 5, "seeds of TestCampaign")

// Whatever happens to the fabric, ranks that reconnect complete and receive every message
// once. To search for failures: go test ./scenarios/workload -run RandomFaults -campaign
// 500.
func TestRandomFaultsWithReconnect(t *testing.T) {
	t.Parallel()
	last := *campaign
	if testing.Short() {
		last = min(last, 2)
	}
	for seed := uint64(1); seed <= last; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg, hosts, rails := drawWorkload(rng)
		r := seededRig(t, seed, hosts, rails, impair.Spec{
			LossPPM: uint32(rng.IntN(60_000)), DuplicatePPM: 10_000, ReorderPPM: 10_000, ReorderDelay: 5 * time.Microsecond,
		})
		for range rng.IntN(6) {
			at := time.Duration(rng.IntN(8000)) * time.Microsecond
			host, port := rng.IntN(hosts), r.ports[rng.IntN(rails)]
			if rng.IntN(3) == 0 {
				r.at(at, port[host].SetDown)
				r.at(at+time.Duration(rng.IntN(20_000))*time.Microsecond, port[host].SetUp)
			} else {
				r.at(at, func() { r.tryToBreak(host) })
			}
		}
		clean(t, r.run(cfg))
		if t.Failed() {
			t.Fatalf("seed %d: %s on %d hosts with %d rails: %+v", seed, nameOf(cfg), hosts, rails, cfg)
		}
	}
}

func drawWorkload(rng *rand.Rand) (cfg workload.Config, hosts, rails int) {
	all := reconnecting()
	cfg = all[rng.IntN(len(all))]
	hosts, rails = 2+rng.IntN(4), 1+rng.IntN(2)
	cfg.Ranks = hosts
	cfg.Think = time.Duration(rng.IntN(100)) * time.Microsecond
	cfg.Depth = 1 + rng.IntN(12)
	cfg.Bytes = 1 + rng.IntN(9000)
	*cfg.Retries = 1 + rng.IntN(7)
	cfg.Spin = rng.IntN(4) == 0 && cfg.Kind != workload.Calls
	xrc := cfg.Services[0] == workload.ServiceXRC
	if pairs := cfg.Kind == workload.Stream || cfg.Kind == workload.PingPong; pairs && !xrc && rng.IntN(3) == 0 {
		cfg.CM, cfg.Timeout = true, 0
	}
	cfg.Failover = rails > 1 && !xrc && cfg.Kind != workload.Calls && rng.IntN(2) == 0
	return cfg, hosts, rails
}

// tryToBreak breaks the queue pairs of a rank, if it has any.
func (r *rig) tryToBreak(rank int) {
	if r.programs[rank] == nil || r.reports[rank] != nil {
		return
	}
	r.World.Go("what breaks a rank", func(*sim.Proc) error {
		_ = r.programs[rank].(workload.Breaker).Break() // there may be none yet
		return nil
	})
}
