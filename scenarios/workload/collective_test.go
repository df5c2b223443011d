package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// Collective operations give the right results over each provider and several rails, and under loss.
func TestCollectiveOperations(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*rig{
		"loss":               newRig(t, 4, 1, impair.Spec{LossPPM: 10_000}),
		"rails":              newRig(t, 4, 2),
		"streams":            rigOf(t, streams, sim.StreamConfig{}, rigSeed, 4, 1),
		"reliable datagrams": rigOf(t, reliableDatagrams, sim.StreamConfig{}, rigSeed, 4, 1),
	} {
		reports := r.run(workload.Config{Kind: workload.Collective, Messages: 3, Bytes: 20_000, Timeout: time.Millisecond})
		clean(t, reports)
		noFailures(t, reports)
		for _, report := range reports {
			if f := report.Flows; len(f) != 3 || f[0].Arrived != 3*int(coll.NumOps) || report.MemoryChecked < 20_000 || report.Elapsed == 0 {
				t.Errorf("%s: %s", name, toJSON(report))
			}
		}
	}
}

// After a rank has been killed, each other one reports the loss once, in the time of the retries.
func TestCollectiveReportsLostRank(t *testing.T) {
	t.Parallel()
	const timeout = time.Millisecond
	r := newRig(t, 4, 1)
	r.start(workload.Config{Kind: workload.Collective, Operation: "alltoall", Messages: 1000, Think: 100 * time.Microsecond, Timeout: timeout})
	r.at(10*time.Millisecond, func() { r.kill(2) })
	must.Do(t, r.RunPrograms())
	for rank, report := range r.reports {
		if rank == 2 {
			continue
		}
		if len(report.Failures) != 1 || report.Failures[0].Status != workload.PeerLost || r.errs[rank] != nil {
			t.Errorf("rank %d: %+v, error %v", rank, report.Failures, r.errs[rank])
		}
		if report.Flows[0].Arrived == 0 || report.Elapsed > 10*time.Millisecond+20*timeout {
			t.Errorf("rank %d: %d operations, ended after %v", rank, report.Flows[0].Arrived, report.Elapsed)
		}
	}
}

// Broken queue pairs of one rail cost no operation if there is another one.
func TestCollectiveSurvivesBrokenRail(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, 2)
	r.start(workload.Config{Kind: workload.Collective, Operation: "allreduce", Messages: 100, Think: 100 * time.Microsecond, Timeout: time.Millisecond})
	r.at(5*time.Millisecond, func() { r.ports[0][1].SetDown() })
	must.Do(t, r.RunPrograms())
	clean(t, r.reports)
	noFailures(t, r.reports)
	if status := r.programs[0].Status(); !strings.Contains(status, "100 of 100 operations") {
		t.Errorf("status %q", status)
	}
}

func TestCollectiveConfigIsChecked(t *testing.T) {
	for _, c := range []struct {
		cfg  workload.Config
		want string
	}{
		{workload.Config{Kind: workload.Collective, Operation: "shuffle"}, `no operation "shuffle"`},
		{workload.Config{Kind: workload.Collective, Operation: "allreduce", Bytes: 9}, "reductions are of numbers"},
		{workload.Config{Kind: workload.Collective, Collectives: "bcast=teleport"}, "collectives:"},
		{workload.Config{Kind: workload.Collective, Spin: true}, "spin:"},
		{workload.Config{Kind: workload.Stream, Operation: "bcast"}, "operation: it is of collective"},
	} {
		if err := c.cfg.Validate(4, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}
