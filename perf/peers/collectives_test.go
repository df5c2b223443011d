package main

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report/peers"
	"github.com/fabrictest/fabrictest/scenarios"
)

// onRanks runs a program on simulated ranks.
func onRanks(t *testing.T, ranks int, program func(*mpi.World) error) {
	t.Helper()
	if _, err := mpihost.InWorld(mpihost.Fabric{Ranks: ranks, Seed: 1}, func(e *transport.Env) error {
		return mpi.Run(e, mpi.Options{}, program)
	}); err != nil {
		t.Error(err)
	}
}

func TestCollectivesCheckResults(t *testing.T) {
	for _, ranks := range []int{3, 4} {
		for _, m := range collectiveMeasurements(ranks, scenarios.VethPair) {
			if m.Bytes > 1<<10 {
				continue
			}
			var failed atomic.Int32 // ranks that found a wrong result
			onRanks(t, ranks, func(w *mpi.World) error {
				c := must.Get(prepareCollective(w, m.Kind, m.Bytes))(t)
				if err := c.repeat(2); err != nil {
					return err
				}
				seconds, err := c.slowest(0, 0)
				if err != nil || seconds <= 0 {
					return fmt.Errorf("%v s at the slowest rank, %w", seconds, err)
				}
				if err := c.check(); err != nil {
					return err
				}
				if w.Rank() == 0 {
					c.in[len(c.in)-1] ^= 0x40 // defective: the result must be wrong at some rank
				}
				if c.check() != nil {
					failed.Add(1)
				}
				return nil
			})
			if failed.Load() == 0 {
				t.Errorf("%s: no rank found a wrong result", m.Title)
			}
		}
	}
}

// Ours takes half of the time of MPICH, but more than it at one point of 8 ranks.
func TestSummaryCountsFasterPoints(t *testing.T) {
	slower := collectiveMeasurements(8, scenarios.VethPair)[3]
	for _, test := range []struct {
		ratio       float64
		wantVerdict string
	}{{1.2, perf.Holds}, {1.4, perf.Missed}} {
		var all []peers.Comparison
		for _, ranks := range []int{4, 8} {
			theirs, ours := turn{}, turn{}
			for _, m := range collectiveMeasurements(ranks, scenarios.VethPair) {
				theirs[m.name()], ours[m.name()] = 4e-6, 2e-6
				if m.Title == slower.Title {
					ours[m.name()] = test.ratio * 4e-6
				}
			}
			turns := map[string]turn{mpich: theirs}
			all = append(all, compare(collectiveMeasurements(ranks, scenarios.VethPair), []round{{Ranks: ranks, Before: turns, After: turns, Ours: ours, NoICRC: theirs}}, []string{mpich})...)
		}
		got := summarize(all, scenarios.VethPair)
		if len(got) != 2 || !got[0].WithICRC || got[0].Points != 60 || got[0].Faster != 59 || got[0].SlowestName != slower.Title || math.Abs(got[0].Slowest-test.ratio) > 1e-9 || got[0].Verdict != test.wantVerdict {
			t.Errorf("%+v, want 59 of 60 points and %s", got, test.wantVerdict)
		}
		if got[1].WithICRC || got[1].Faster != 0 || got[1].Verdict != perf.Missed {
			t.Errorf("%+v, want no faster point", got[1])
		}
		r := peers.Run{Comparisons: all, Summaries: got[:1]}
		if r.Missed() != (test.wantVerdict == perf.Missed) {
			t.Errorf("missed %v with the verdict %s", r.Missed(), test.wantVerdict)
		}
		var b strings.Builder
		if err := r.WriteTable(&b); err != nil || !strings.Contains(b.String(), "faster than MPICH at 59 of 60 points (98 %)") {
			t.Errorf("%v, no summary in the output:\n%s", err, &b)
		}
	}
}

func TestJobsOfCollectives(t *testing.T) {
	jobs := must.Get(collectiveJobs(job{Collectives: true}, "4,8", "bcast,alltoall"))(t)
	if len(jobs) != 2 || jobs[0].Ranks != 4 || jobs[1].Ranks != 8 {
		t.Fatalf("%+v, want jobs of 4 and 8 ranks", jobs)
	}
	for _, m := range jobs[1].measurements() {
		if m.Kind != bcast && m.Kind != alltoall {
			t.Errorf("%s is measured", m.Title)
		}
	}
	for _, bad := range [][2]string{{"", ""}, {"1", ""}, {"65", ""}, {"four", ""}, {"4", "scan"}} {
		if _, err := collectiveJobs(job{}, bad[0], bad[1]); err == nil {
			t.Errorf("no error for ranks %q and operations %q", bad[0], bad[1])
		}
	}
}
