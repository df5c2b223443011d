package work_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// measureCollectives runs the workload collective, and returns its times and its figures by name.
func measureCollectives(t *testing.T, ranks int, c work.Collective) ([]work.CollectiveTime, map[string]float64) {
	t.Helper()
	return measureCollectivesWith(t, mpi.Options{}, mpihost.Fabric{Ranks: ranks}, c)
}

func measureCollectivesWith(t *testing.T, o mpi.Options, f mpihost.Fabric, c work.Collective) ([]work.CollectiveTime, map[string]float64) {
	t.Helper()
	f.Limit = time.Minute
	wl := must.Get(work.Find(work.CollectiveName))(t)
	results, _, err := inWorld(f, o, wl, work.Params{Iterations: 8, Collective: c})
	must.Do(t, err)
	if c.Operation != "barrier" { // has no data to check
		must.Do(t, checkResults(wl, results))
	}
	figures := map[string]float64{}
	for _, f := range results[0].Figures {
		figures[f.Name] = f.Value
	}
	return results[0].Collectives, figures
}

// Algorithms are measured by size; those that do not fit are left out.
func TestCollectiveMeasuresAlgorithms(t *testing.T) {
	for _, c := range []struct {
		ranks         int
		ask           []string
		with, without []string
	}{
		{4, []string{"chain", "linear"}, []string{"chain", "linear"}, []string{"binomial"}},
		{4, []string{"all"}, []string{"binomial", "chain", "scatter-doubling", "shared"}, nil},
		{5, []string{"all"}, []string{"binomial", "chain"}, []string{"scatter-doubling"}},
	} {
		times, figures := measureCollectives(t, c.ranks, work.Collective{Operation: "bcast", Sizes: []int{8, 64 << 10}, Algorithms: c.ask, Warmup: 2})
		for _, m := range times {
			if m.Mean <= 0 || m.Mean > m.Slowest || m.Low > m.Slowest || m.Slowest > m.High || slices.Contains(c.without, m.Algorithm) {
				t.Errorf("%d ranks, %v: %+v", c.ranks, c.ask, m)
			}
		}
		for _, name := range c.with {
			if figures[name+" mean 8 B"] <= 0 || figures[name+" mean 65536 B"] <= figures[name+" mean 8 B"] {
				t.Errorf("%d ranks: %v has no times of %s", c.ranks, figures, name)
			}
		}
	}
	if times, figures := measureCollectives(t, 4, work.Collective{Operation: "bcast", Sizes: []int{8}}); len(times) != 1 || figures["mean 8 B"] <= 0 {
		t.Errorf("the algorithm that the runtime selects: %+v, %v", times, figures)
	}
}

// A chain takes longer than a tree to broadcast a short message to many ranks: the choice has an effect.
func TestCollectiveUsesTheChosenAlgorithm(t *testing.T) {
	times, _ := measureCollectives(t, 16, work.Collective{Operation: "bcast", Sizes: []int{8}, Algorithms: []string{"binomial", "chain"}, Warmup: 2})
	if tree, chain := times[0], times[1]; len(times) != 2 || chain.Slowest < 2*tree.Slowest {
		t.Errorf("%+v takes less than twice the time of %+v", chain, tree)
	}
}

// The runtime selects the algorithm of the rule for the ranks, the hosts and the size of a call, and else
// the default.
func TestRulesSelectAlgorithms(t *testing.T) {
	o := mpi.Options{Rules: []coll.Rule{
		{Operation: "bcast", Ranks: 4, PerHost: 1, From: 1 << 10, Algorithm: "chain"},
		{Operation: "bcast", Ranks: 4, PerHost: 4, To: 1 << 10, Algorithm: "shared"},
		{Operation: "bcast", Ranks: 5, PerHost: 1, Algorithm: "scatter-doubling"}, // does not fit
	}}
	for _, c := range []struct {
		ranks, perHost int
		want           []string
	}{{4, 1, []string{"binomial", "chain"}}, {4, 4, []string{"shared", "binomial"}}, {4, 2, []string{"binomial", "binomial"}}, {5, 1, []string{"binomial", "binomial"}}} {
		times, _ := measureCollectivesWith(t, o, mpihost.Fabric{Ranks: c.ranks, PerHost: c.perHost}, work.Collective{Operation: "bcast", Sizes: []int{8, 2 << 10}})
		if got := []string{times[0].Algorithm, times[1].Algorithm}; !slices.Equal(got, c.want) {
			t.Errorf("%d ranks, %d per host: %v, want %v", c.ranks, c.perHost, got, c.want)
		}
	}
}

// A time limit ends a measurement after at least five iterations.
func TestCollectiveEndsAfterItsTime(t *testing.T) {
	times, _ := measureCollectives(t, 4, work.Collective{Operation: "bcast", Sizes: []int{8}, Warmup: 1, Time: time.Nanosecond})
	if n := times[0].Iterations; n != 5 {
		t.Errorf("%d iterations, want 5", n)
	}
}

// Skewed arrival makes ranks wait in a barrier: if one of four is late, the others wait as long as it
// computes; if all arrive at random, no rank waits longer than the bound. A waiting rank polls after an
// eighth of the time that it has waited.
func TestCollectiveSkewedArrival(t *testing.T) {
	const mif, polls = 512, 9.0 / 8
	measure := func(c work.Collective) (mean, slowest, message float64) {
		c.Operation, c.Warmup = "barrier", 2
		_, figures := measureCollectives(t, 4, c)
		return figures["mean"], figures["slowest"], figures["message"]
	}
	barrier, _, _ := measure(work.Collective{})
	mean, slowest, message := measure(work.Collective{MIF: mif, Late: 25})
	if bound := mif * message; mean < bound*3/4 || mean > polls*bound*3/4+2*barrier || slowest < bound {
		t.Errorf("one of four ranks late by %v: mean %v, slowest %v", bound, mean, slowest)
	}
	mean, slowest, message = measure(work.Collective{MIF: mif})
	if bound := mif * message; mean < bound/8 || mean > bound*3/4 || slowest > polls*bound+2*barrier {
		t.Errorf("random arrival within %v: mean %v, slowest %v", bound, mean, slowest)
	}
}

// Groups of ranks perform all operations at the same time, each with its own data.
func TestCollectiveOfGroups(t *testing.T) {
	const ranks, groups = 12, 3
	for op := range coll.NumOps {
		fabric := mpihost.Fabric{Ranks: ranks, PerHost: 3}
		c := work.Collective{Operation: op.String(), Sizes: []int{8, 16 << 10}, Groups: groups}
		times, figures := measureCollectivesWith(t, mpi.Options{}, fabric, c)
		for _, m := range times {
			if want := groups / m.Mean.Seconds(); m.Rate < want*0.999 || m.Rate > want*1.001 {
				t.Errorf("%v of %d B: %v operations a second, want %v", op, m.Bytes, m.Rate, want)
			}
		}
		if op == coll.Barrier && figures["rate"] != times[0].Rate || op == coll.Bcast && figures["rate 8 B"] != times[0].Rate {
			t.Errorf("%v: the figures are %v, want a rate of %v", op, figures, times[0].Rate)
		}
	}
}

// A rank that is late delays its group only: one of four waits for it in a group of two, and three do
// without groups.
func TestCollectiveGroupsDoNotWaitForOthers(t *testing.T) {
	const mif, polls = 512, 9.0 / 8
	_, figures := measureCollectives(t, 4, work.Collective{Operation: "barrier", Warmup: 2, Groups: 2, MIF: mif, Late: 25})
	if bound := mif * figures["message"]; figures["mean"] < bound/4 || figures["mean"] > polls*bound/4+4*figures["message"] {
		t.Errorf("one of four ranks late by %v: %v, want a mean of a quarter of it", bound, figures)
	}
}

// Node-aware algorithms give correct results when packets are lost. The workload checks the results.
func TestCollectiveOfHostsWithLoss(t *testing.T) {
	for op := range coll.NumOps {
		var names []string
		for _, a := range coll.Algorithms(op) {
			if a.Needs&coll.KnownNodes != 0 {
				names = append(names, a.Name)
			}
		}
		if names == nil {
			continue
		}
		fabric := mpihost.Fabric{Ranks: 12, PerHost: 4, Impair: []impair.Spec{{LossPPM: 3000}}}
		times, _ := measureCollectivesWith(t, mpi.Options{}, fabric, work.Collective{Operation: op.String(), Sizes: []int{24 << 10}, Algorithms: names})
		if len(times) != len(names) {
			t.Errorf("%v: measured %+v, want %v", op, times, names)
		}
	}
}

// Without computation, FT spends its time in collective calls. With computation the time in them is what
// remains, because all ranks compute for the same time.
func TestTimeInCollectives(t *testing.T) {
	wl := must.Get(work.Find("ft"))(t)
	measure := func(compute time.Duration) work.Result {
		results, _, err := inWorld(mpihost.Fabric{Ranks: 4, Limit: time.Minute}, mpi.Options{}, wl, work.Params{Compute: compute})
		must.Do(t, err)
		return results[0]
	}
	alone, with := measure(0), measure(time.Millisecond)
	if alone.InCollectives < alone.Time/2 || alone.InCollectives > alone.Time {
		t.Errorf("of %v, %v are in collective calls", alone.Time, alone.InCollectives)
	}
	if computed := with.Time - with.InCollectives; computed < time.Millisecond || with.InCollectives > 2*alone.InCollectives {
		t.Errorf("with computation %v are in collective calls, of %v; without %v", with.InCollectives, with.Time, alone.InCollectives)
	}
}
