package workload_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

func TestScratchCampaign(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SEEDS"))
	first, _ := strconv.Atoi(os.Getenv("FIRST"))
	for seed := uint64(first); seed < uint64(first+n); seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := reconnecting()
		cfg := all[rng.IntN(len(all))]
		hosts := 2 + rng.IntN(4)
		rails := 1 + rng.IntN(2)
		cfg.Ranks = hosts
		cfg.Think = time.Duration(rng.IntN(100)) * time.Microsecond
		cfg.Depth = 1 + rng.IntN(12)
		cfg.Bytes = 1 + rng.IntN(9000)
		*cfg.Retries = 1+rng.IntN(7)
		cfg.Spin = rng.IntN(4) == 0 && cfg.Kind != workload.Calls
		if cfg.Kind == workload.Stream || cfg.Kind == workload.PingPong {
			if cfg.Services[0] != workload.ServiceXRC && rng.IntN(3) == 0 {
				cfg.CM, cfg.Timeout = true, 0
			}
		}
		cfg.Failover = rails > 1 && rng.IntN(2) == 0 && cfg.Services[0] != workload.ServiceXRC && cfg.Kind != workload.Calls
		r := seededRig(t, seed, hosts, rails, impair.Spec{LossPPM: uint32(rng.IntN(60_000)), DuplicatePPM: 10_000, ReorderPPM: 10_000, ReorderDelay: 5 * time.Microsecond})
		for range rng.IntN(6) {
			at := time.Duration(rng.IntN(8000)) * time.Microsecond
			host, rail := rng.IntN(hosts), rng.IntN(rails)
			switch rng.IntN(3) {
			case 0:
				r.at(at, r.ports[rail][host].SetDown)
				r.at(at+time.Duration(rng.IntN(20000))*time.Microsecond, r.ports[rail][host].SetUp)
			default:
				r.at(at+500*time.Microsecond, func() { if r.reports[host] == nil { r.tryBreak(host) } })
			}
		}
		println(seed, nameOf(cfg), hosts, rails, cfg.Spin, cfg.CM)
		r.start(cfg)
		if err := r.RunPrograms(); err != nil {
			t.Fatalf("seed %d %+v: %v", seed, cfg, err)
		}
		bad := false
		for rank, err := range r.errs {
			if err != nil {
				t.Errorf("seed %d rank %d: %v", seed, rank, err)
				bad = true
			}
		}
		for _, p := range r.reports {
			if len(p.Violations) > 0 {
				t.Errorf("seed %d rank %d: %q", seed, p.Rank, p.Violations)
				bad = true
			}
			for _, f := range p.Flows {
				if f.Arrived != f.Expected || f.Twice+f.Swapped > 0 {
					t.Errorf("seed %d rank %d: %+v", seed, p.Rank, f)
					bad = true
				}
			}
		}
		if bad {
			t.Logf("seed %d: %s hosts %d rails %d %+v retries %d", seed, nameOf(cfg), hosts, rails, cfg, *cfg.Retries)
			for i, m := range r.marks {
				if i < 60 {
					t.Log(m)
				}
			}
			return
		}
	}
}
