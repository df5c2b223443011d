package workload_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// workloads returns small workloads of every kind with each operation and service.
func workloads() (all []workload.Config) {
	add := func(kind workload.Kind, op, service string, more ...func(*workload.Config)) {
		c := workload.Config{Kind: kind, Op: op, Services: []string{service}, Messages: 60, Bytes: 5000, Depth: 8}
		for _, f := range more {
			f(&c)
		}
		all = append(all, c)
	}
	datagram := func(c *workload.Config) { c.Bytes = 1000 }
	for _, kind := range []workload.Kind{workload.Stream, workload.Incast, workload.AllToAll} {
		for _, op := range []string{workload.OpSend, workload.OpWrite, workload.OpRead} {
			for _, s := range []string{workload.ServiceRC, workload.ServiceSRQ, workload.ServiceXRC} {
				add(kind, op, s)
			}
		}
		add(kind, workload.OpSend, workload.ServiceUC)
		add(kind, workload.OpSend, workload.ServiceUD, datagram)
	}
	for _, op := range []string{workload.OpSend, workload.OpWrite} {
		add(workload.PingPong, op, workload.ServiceRC)
	}
	for _, op := range []string{workload.OpWrite, workload.OpRead} {
		add(workload.Halo, op, workload.ServiceRC)
	}
	all = append(all,
		workload.Config{Kind: workload.Random, Messages: 60, Bytes: 5000},
		workload.Config{Kind: workload.Calls, Messages: 23, Bytes: 5000},
	)
	for i := range all {
		if all[i].Services == nil {
			all[i] = all[i].WithDefaults(4)
		}
	}
	return all
}

// thorough runs every fault with every combination.
var thorough = flag.Bool("thorough", false, "every operation on every service under every fault, instead of every pair of them")

// thinned returns a third of the workloads of three kinds, with every pair of a kind, an operation
// and a service, and all other workloads. turn selects the third. With -thorough it returns all.
func thinned(all []workload.Config, turn int) []workload.Config {
	if *thorough {
		return all
	}
	kinds := []workload.Kind{workload.Stream, workload.Incast, workload.AllToAll}
	ops := []string{workload.OpSend, workload.OpWrite, workload.OpRead}
	services := []string{workload.ServiceRC, workload.ServiceSRQ, workload.ServiceXRC}
	return slices.DeleteFunc(slices.Clone(all), func(c workload.Config) bool {
		k, o, s := slices.Index(kinds, c.Kind), slices.Index(ops, c.Op), slices.Index(services, c.Services[0])
		return k >= 0 && s >= 0 && (k+o+s)%3 != turn
	})
}

func nameOf(c workload.Config) string {
	return fmt.Sprintf("%s/%s/%s", c.Kind, c.Services[0], c.Op)
}

func TestAllKindsOnCleanFabric(t *testing.T) {
	t.Parallel()
	for _, cfg := range workloads() {
		t.Run(nameOf(cfg), func(t *testing.T) {
			r := newRig(t, 4, 1)
			reports := r.run(cfg)
			clean(t, reports)
			noFailures(t, reports)
			if t.Failed() || cfg.Op == workload.OpWrite {
				t.Log(toJSON(reports[0]))
			}
		})
	}
}

// campaign is the number of seeds of TestRandomFaultsWithReconnect.
var campaign = flag.Uint64("campaign", 5, "seeds of TestRandomFaultsWithReconnect")

// Under random faults, ranks that reconnect complete and receive every message once. To search for
// failures: go test ./scenarios/workload -run RandomFaults -campaign 500.
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
		_ = r.programs[rank].(workload.Breaker).Break() // there may be no queue pair yet
		return nil
	})
}

// Every kind of workload runs over NICs that connect through the CM only, have no RNR, and
// complete requests before delivery.
func TestKindsOverStreams(t *testing.T) {
	cut := sim.StreamConfig{CutPPM: 200_000, StallPPM: 10_000, StallFor: 30 * time.Millisecond}
	for name, cfg := range map[string]workload.Config{
		"send":        {Kind: workload.Stream, Op: workload.OpSend, Messages: 100, Bytes: 9000},
		"write":       {Kind: workload.Stream, Op: workload.OpWrite, Messages: 100, Bytes: 9000},
		"read":        {Kind: workload.Stream, Op: workload.OpRead, Messages: 100, Bytes: 9000},
		"short":       {Kind: workload.Stream, Op: workload.OpSend, Messages: 100, Bytes: 3},
		"pingpong":    {Kind: workload.PingPong, Messages: 100, Bytes: 3},
		"incast":      {Kind: workload.Incast, Op: workload.OpWrite, Messages: 40, Bytes: 9000},
		"all to all":  {Kind: workload.AllToAll, Op: workload.OpSend, Messages: 40, Bytes: 3000, Services: []string{workload.ServiceSRQ}},
		"halo":        {Kind: workload.Halo, Messages: 30, Bytes: 3000},
		"halo, reads": {Kind: workload.Halo, Op: workload.OpRead, Messages: 30, Bytes: 3000},
		"calls":       {Kind: workload.Calls, Messages: 30, Bytes: 3000},
		"random":      {Kind: workload.Random, Services: []string{workload.ServiceRC, workload.ServiceSRQ}, Messages: 100, Bytes: 9000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range []sim.StreamConfig{{}, cut} {
				r := rigOf(t, streams, s, rigSeed, 4, 1)
				for rank, rep := range r.run(cfg) {
					if len(rep.Violations) > 0 || rep.FailureCount > 0 || rep.Reconnects > 0 {
						t.Errorf("rank %d: %d failures, %d reconnects, %s", rank, rep.FailureCount, rep.Reconnects, listed(rep.Violations))
					}
					for _, f := range rep.Flows {
						if f.Arrived != f.Expected || f.Duplicates > 0 {
							t.Errorf("rank %d: %+v", rank, f)
						}
					}
				}
			}
		})
	}
}

// Broken connections reconnect, and exactly the messages that have not arrived are sent again.
func TestBrokenStreamsReconnect(t *testing.T) {
	for seed := range uint64(20) {
		for _, op := range []string{workload.OpSend, workload.OpWrite, workload.OpRead} {
			r := rigOf(t, streams, sim.StreamConfig{ResetPPM: 4000, CutPPM: 100_000}, seed, 4, 1)
			broke := 0
			for rank, rep := range r.run(workload.Config{Kind: workload.AllToAll, Op: op, Messages: 60, Bytes: 5000, Reconnect: true}) {
				broke += rep.Reconnects
				if len(rep.Violations) > 0 {
					t.Errorf("seed %d, rank %d: %s", seed, rank, listed(rep.Violations))
				}
				for _, f := range rep.Flows {
					if f.Arrived != f.Expected || f.Duplicates > 0 {
						t.Errorf("seed %d, rank %d: %+v", seed, rank, f)
					}
				}
			}
			if seed == 0 && broke == 0 {
				t.Error("no connection broke")
			}
		}
	}
}

func TestUnsupportedWorkloadIsRejected(t *testing.T) {
	for want, cfg := range map[string]workload.Config{
		"softiwarp has no ud": {Kind: workload.Stream, Services: []string{workload.ServiceUD}, Bytes: 100},
		"pause: over softiwarp a message without a posted receive ends the connection": {Kind: workload.Stream, Pause: time.Millisecond},
	} {
		r := rigOf(t, streams, sim.StreamConfig{}, rigSeed, 2, 1)
		r.start(cfg)
		if err := r.RunPrograms(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
