package workload_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/traffic"
)

// The same seed gives the same reports, samples and marks.
func TestSameSeedSameReport(t *testing.T) {
	t.Parallel()
	for _, cfg := range []workload.Config{
		{Kind: workload.AllToAll, Messages: 20, Bytes: 3000, Reconnect: true, Timeout: 200 * time.Microsecond},
		{Kind: workload.Halo, Op: workload.OpRead, Messages: 30},
		{Kind: workload.Random, Messages: 50, Bytes: 3000, Excuses: []string{workload.ExcuseLoses}},
		{Kind: workload.Calls},
	} {
		run := func(seed uint64) string {
			r := seededRig(t, seed, 4, 1, impair.Spec{LossPPM: 20_000})
			r.start(cfg)
			r.at(500*time.Microsecond, func() { r.ports[0][2].SetDown() })
			r.at(5*time.Millisecond, func() { r.ports[0][2].SetUp() })
			must.Do(t, r.RunPrograms())
			return toJSON(r.reports) + toJSON(r.samples) + strings.Join(r.marks, "\n")
		}
		if once, again := run(3), run(3); once != again {
			t.Errorf("%s: two runs with the same seed differ", cfg.Kind)
		}
		if run(3) == run(4) {
			t.Errorf("%s: runs with the seeds 3 and 4 are equal", cfg.Kind)
		}
	}
}

func TestKindsWithSixtyFourRanks(t *testing.T) {
	t.Parallel()
	for _, cfg := range []workload.Config{
		{Kind: workload.AllToAll, Messages: 1, Bytes: 1000, Depth: 1},
		{Kind: workload.Halo, Messages: 5},
		{Kind: workload.Incast, Messages: 5, Bytes: 8000},
	} {
		r := newRig(t, 64, 1)
		reports := r.run(cfg)
		clean(t, reports)
		noFailures(t, reports)
		if f := reports[0].Flows; cfg.Kind != workload.Halo && len(f) != 63 {
			t.Errorf("%s: rank 0 has %d flows", cfg.Kind, len(f))
		}
	}
}

// All rails are used, by separate flows.
func TestAllRailsAreUsed(t *testing.T) {
	t.Parallel()
	for _, cfg := range workloads() {
		if cfg.Services[0] != workload.ServiceRC {
			continue // rails do not depend on the service
		}
		r := newRig(t, 4, 2)
		reports := r.run(cfg)
		clean(t, reports)
		noFailures(t, reports)
		if cfg.Kind == workload.Random || cfg.Kind == workload.Calls {
			continue
		}
		if f := reports[0].Flows; f[0].Rail != 0 || f[1].Rail != 1 {
			t.Errorf("%s: flows on rails %d and %d", nameOf(cfg), f[0].Rail, f[1].Rail)
		}
	}
}

func TestKindsOverConnectionManager(t *testing.T) {
	t.Parallel()
	for _, cfg := range []workload.Config{
		{Kind: workload.Stream, Op: workload.OpSend, Messages: 100, Bytes: 3000, CM: true},
		{Kind: workload.Stream, Op: workload.OpRead, Messages: 100, Bytes: 3000, CM: true, Services: []string{workload.ServiceSRQ}},
		{Kind: workload.PingPong, Op: workload.OpWrite, Messages: 100, CM: true},
	} {
		cfg = cfg.WithDefaults(4)
		r := newRig(t, 4, 2, impair.Spec{LossPPM: 10_000})
		reports := r.run(cfg)
		clean(t, reports)
		for _, c := range reports[0].Counters {
			if c.Name == "mads_sent" && c.Value == 0 {
				t.Errorf("%s: the connection manager sent nothing", nameOf(cfg))
			}
		}
		// The CM also reconnects after a failure.
		cfg.Reconnect, cfg.Think = true, 100*time.Microsecond
		r = newRig(t, 4, 1)
		r.at(3*time.Millisecond, func() { r.breakRank(0) })
		reports = r.run(cfg)
		clean(t, reports)
		if reports[0].Reconnects == 0 {
			t.Errorf("%s did not reconnect", nameOf(cfg))
		}
	}
}

func TestPollingAndEvents(t *testing.T) {
	t.Parallel()
	for _, kind := range workload.Kinds() {
		if kind == workload.Calls || kind == workload.Collective { // they do not poll
			continue
		}
		cfg := workload.Config{Kind: kind, Messages: 40, Bytes: 1000, Spin: true}
		reports := newRig(t, 4, 2).run(cfg)
		clean(t, reports)
		noFailures(t, reports)
	}
}

// A rank whose peer never connects fails, and reports what it waits for.
func TestStallErrorNamesAwaitedPeer(t *testing.T) {
	t.Parallel()
	for _, cfg := range workloads() {
		if cfg.Services[0] != workload.ServiceRC {
			continue
		}
		cfg.Ranks = 2
		r := newRig(t, 2, 1)
		r.patience = time.Second
		r.start(cfg)
		r.procs[1].Pause()
		must.Do(t, r.RunUntil(1e12))
		var stuck *traffic.StallError
		if err := r.errs[0]; err == nil || !strings.Contains(err.Error(), "nothing happened for") {
			t.Errorf("%s: %v, want a stall error", nameOf(cfg), err)
		} else if cfg.Kind != workload.Random && !errors.As(err, &stuck) {
			t.Errorf("%s: %T", nameOf(cfg), err)
		}
		if r.reports[0] == nil || r.programs[0].Status() == "" {
			t.Errorf("%s: no report", nameOf(cfg))
		}
		r.Close()
	}
}

// Break fails before there is a queue pair, and does nothing after the end.
func TestBreakBeforeStartAndAfterEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, 1)
	program, err := workload.New(workload.Config{Kind: workload.Stream}, &workload.Rank{Size: 2, NICs: []workload.NIC{{Device: r.nics[0][0]}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := program.(workload.Breaker).Break(); err == nil {
		t.Error("Break without a queue pair returned no error")
	}
	r.run(workload.Config{Kind: workload.Stream, Messages: 10})
	if err := r.programs[0].(workload.Breaker).Break(); err != nil {
		t.Errorf("after the end: %v", err)
	}
	if _, err := workload.New(workload.Config{Kind: "flood"}, &workload.Rank{Size: 2}); err == nil {
		t.Error("an unknown kind is accepted")
	}
}
