package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

var rd = []string{workload.ServiceRD}

// Every kind of workload without connections runs over reliable datagrams, on good and on
// lossy networks, with rd as explicit or default service.
func TestKindsOverReliableDatagrams(t *testing.T) {
	bad := impair.Spec{LossPPM: 100_000, DuplicatePPM: 50_000, DuplicateDelay: 10 * time.Microsecond, ReorderPPM: 50_000, ReorderDelay: 20 * time.Microsecond}
	for name, cfg := range map[string]workload.Config{
		"send":        {Kind: workload.Stream, Op: workload.OpSend, Messages: 100, Bytes: 9000},
		"write":       {Kind: workload.Stream, Op: workload.OpWrite, Messages: 100, Bytes: 9000},
		"read":        {Kind: workload.Stream, Op: workload.OpRead, Messages: 100, Bytes: 9000},
		"short":       {Kind: workload.Stream, Op: workload.OpSend, Messages: 100, Bytes: 3, Services: rd},
		"slow":        {Kind: workload.Stream, Op: workload.OpSend, Messages: 60, Bytes: 3000, Pause: time.Millisecond},
		"pingpong":    {Kind: workload.PingPong, Messages: 100, Bytes: 3},
		"incast":      {Kind: workload.Incast, Op: workload.OpWrite, Messages: 40, Bytes: 9000},
		"all to all":  {Kind: workload.AllToAll, Op: workload.OpSend, Messages: 40, Bytes: 3000, Services: rd},
		"halo":        {Kind: workload.Halo, Messages: 30, Bytes: 3000},
		"halo of two": {Kind: workload.Halo, Messages: 30, Bytes: 3000, Ranks: 2},
		"halo, reads": {Kind: workload.Halo, Op: workload.OpRead, Messages: 30, Bytes: 3000},
		"random":      {Kind: workload.Random, Services: rd, Messages: 100, Bytes: 9000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, spec := range []impair.Spec{{}, bad} {
				r := rigOf(t, reliableDatagrams, sim.StreamConfig{}, rigSeed, 4, 2, spec)
				again := uint64(0)
				for rank, rep := range r.run(cfg) {
					if len(rep.Violations) > 0 || rep.FailureCount > 0 || rep.Reconnects > 0 {
						t.Errorf("rank %d: %d failures, %d reconnects, %s", rank, rep.FailureCount, rep.Reconnects, listed(rep.Violations))
					}
					for _, f := range rep.Flows {
						if f.Arrived != f.Expected || f.Duplicates > 0 || f.Service != workload.ServiceRD {
							t.Errorf("rank %d: %+v", rank, f)
						}
					}
					if s := r.samples[rank]; len(s) > 0 {
						again += s[len(s)-1].Retransmits
					}
				}
				if spec.LossPPM > 0 && again < 20 {
					t.Errorf("%d retransmissions with a loss of 10%%", again)
				}
			}
		})
	}
}

// One queue pair serves all peers of a rank on a rail.
func TestReliableDatagramsShareQueuePair(t *testing.T) {
	for cfg, want := range map[*workload.Config]int{
		{Kind: workload.AllToAll, Messages: 3, Bytes: 100}:       1,
		{Kind: workload.Halo, Messages: 3, Bytes: 100}:           1,
		{Kind: workload.Halo, Messages: 3, Bytes: 100, Ranks: 2}: 2, // two ranks have two edges
	} {
		r := rigOf(t, reliableDatagrams, sim.StreamConfig{}, rigSeed, 6, 1)
		made := 0
		r.wrap = func(host int, dev verbs.Context) verbs.Context {
			if host == 0 {
				return &qpCounter{dev, &made}
			}
			return dev
		}
		clean(t, r.run(*cfg))
		if made != want {
			t.Errorf("%s of %d: %d queue pairs at rank 0, want %d", cfg.Kind, cfg.Ranks, made, want)
		}
	}
}

// qpCounter counts the queue pairs that are created.
type qpCounter struct {
	verbs.Context
	made *int
}

func (c *qpCounter) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	*c.made++
	return c.Context.CreateQP(in)
}

// A silent peer fails the requests to it, but not those to other peers on the same queue pair.
func TestSilentPeerFailsOnlyItsRequests(t *testing.T) {
	r := rigOf(t, reliableDatagrams, sim.StreamConfig{}, rigSeed, 4, 1)
	r.at(2*time.Millisecond, func() { r.ports[0][3].SetDown() })
	reports := r.run(workload.Config{Kind: workload.AllToAll, Messages: 100, Bytes: 1000, Think: 100 * time.Microsecond})
	for rank, rep := range reports {
		if len(rep.Violations) > 0 {
			t.Errorf("rank %d: %s", rank, listed(rep.Violations))
		}
		for _, f := range rep.Flows {
			whole := f.Arrived == f.Expected
			if whole == (rank == 3 || f.Peer == 3) || f.Duplicates > 0 {
				t.Errorf("rank %d: %+v", rank, f)
			}
		}
		for _, f := range rep.Failures {
			if rank != 3 && f.Peer != 3 || f.Status != verbs.WCRetryExcErr.String() {
				t.Errorf("rank %d: %+v", rank, f)
			}
		}
		if rep.FailureCount == 0 {
			t.Errorf("rank %d saw no failure", rank)
		}
	}
}

// A queue pair in the error state ends all connections of its rank, in either direction,
// and nothing hangs.
func TestBrokenEndpointEndsAllConnections(t *testing.T) {
	for _, op := range []string{workload.OpSend, workload.OpRead} {
		for broken := range 2 {
			r := rigOf(t, reliableDatagrams, sim.StreamConfig{}, rigSeed, 4, 1)
			r.at(2*time.Millisecond, func() { r.breakRank(broken) })
			reports := r.run(workload.Config{Kind: workload.Incast, Op: op, Messages: 100, Bytes: 1000, Think: 100 * time.Microsecond})
			for rank, rep := range reports {
				if len(rep.Violations) > 0 {
					t.Errorf("%s, rank %d broken, rank %d: %s", op, broken, rank, listed(rep.Violations))
				}
			}
			if reports[broken].FailureCount == 0 {
				t.Errorf("%s, rank %d was broken and saw no failure", op, broken)
			}
		}
	}
}

// Unreliable datagrams work over any NIC.
func TestKindsOverDatagrams(t *testing.T) {
	ud := []string{workload.ServiceUD}
	for name, cfg := range map[string]workload.Config{
		"stream":     {Kind: workload.Stream, Services: ud, Messages: 200, Bytes: 4096},
		"incast":     {Kind: workload.Incast, Services: ud, Messages: 100, Bytes: 1000},
		"all to all": {Kind: workload.AllToAll, Services: ud, Messages: 100, Bytes: 8},
		"random":     {Kind: workload.Random, Services: ud, Messages: 200, Bytes: 4096},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, spec := range []impair.Spec{{}, {LossPPM: 50_000}} {
				cfg.Excuses = nil
				if spec.LossPPM > 0 {
					cfg.Excuses = []string{workload.ExcuseLoses}
				}
				r := rigOf(t, datagrams, sim.StreamConfig{}, rigSeed, 4, 1, spec)
				arrived, expected := 0, 0
				for rank, rep := range r.run(cfg) {
					if len(rep.Violations) > 0 || rep.FailureCount > 0 {
						t.Errorf("rank %d: %d failures, %s", rank, rep.FailureCount, listed(rep.Violations))
					}
					for _, f := range rep.Flows {
						arrived += f.Arrived
						expected += f.Expected
					}
				}
				if whole := arrived == expected; whole != (spec.LossPPM == 0) || arrived < expected/2 {
					t.Errorf("%d ppm lost: %d of %d", spec.LossPPM, arrived, expected)
				}
			}
		})
	}
}

func TestUnsupportedWorkloadOverDatagramsIsRejected(t *testing.T) {
	for want, cfg := range map[string]workload.Config{
		"dgiwarp has no rc":             {Kind: workload.Stream, Services: []string{workload.ServiceRC}},
		"rd has no connections":         {Kind: workload.Stream, Reconnect: true},
		"dgiwarp has no rc, srq, xrc":   {Kind: workload.Random},
		"dgiwarp has no srq":            {Kind: workload.AllToAll, Services: []string{workload.ServiceSRQ}},
		"bytes: 7 are too few to hold":  {Kind: workload.Stream, Services: []string{workload.ServiceUD}, Bytes: 7},
		"connections through the conne": {Kind: workload.Stream, Services: rd, CM: true},
	} {
		open := reliableDatagrams
		if strings.HasPrefix(want, "bytes") {
			open = datagrams
		}
		r := rigOf(t, open, sim.StreamConfig{}, rigSeed, 2, 1)
		r.start(cfg)
		if err := r.RunPrograms(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	r := newRig(t, 2, 1)
	r.start(workload.Config{Kind: workload.Stream, Services: rd})
	if err := r.RunPrograms(); err == nil || !strings.Contains(err.Error(), "softroce has no rd") {
		t.Error(err)
	}
}

func TestRetryBudget(t *testing.T) {
	n := func(i int) *int { return &i }
	for _, c := range []struct {
		cfg  workload.Config
		want [3]time.Duration
	}{
		{workload.Config{Kind: workload.Stream}, [3]time.Duration{}},
		{workload.Config{Kind: workload.Stream, Timeout: 30 * time.Millisecond}, [3]time.Duration{33554432, 8 * 33554432}},
		{workload.Config{Kind: workload.Stream, Timeout: 30 * time.Millisecond, Retries: n(1)}, [3]time.Duration{33554432, 2 * 33554432}},
		{workload.Config{Kind: workload.Stream, RNRRetries: n(3), RNRTimer: 900 * time.Microsecond}, [3]time.Duration{0, 0, 4 * 960 * time.Microsecond}},
	} {
		if wait, all, busy := c.cfg.RetryBudget(); [3]time.Duration{wait, all, busy} != c.want {
			t.Errorf("%+v: %v, %v, %v", c.cfg, wait, all, busy)
		}
	}
}
