package work_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/verbs"
)

// tenGigabit has links of 10 Gb/s on which a small message takes a few microseconds. NICs have short
// queues, therefore later messages do not wait for all of a large one.
func tenGigabit(ranks int) mpihost.Fabric {
	f := mpihost.Fabric{Ranks: ranks, Limit: time.Minute}
	f.Link.RateBps, f.Link.Latency, f.Link.TxQueueBytes = 10_000_000_000, 3*time.Microsecond, 16<<10
	return f
}

func figure(t *testing.T, r work.Result, name string) float64 {
	t.Helper()
	i := slices.IndexFunc(r.Figures, func(f work.Figure) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no figure %q in %v", name, r)
	}
	return r.Figures[i].Value
}

// With a progress task all messages progress while the program computes, with any protocol.
func TestBackgroundProgress(t *testing.T) {
	const large = 1 << 20
	for _, protocol := range []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative} {
		wl := must.Get(work.Find("progress"))(t)
		o := mpi.Options{P2P: p2p.Config{Protocol: protocol}, Progress: mpi.Background, Carrier: carrier.Config{Design: carrier.SRQ}}
		results, _, err := inWorld(tenGigabit(2), o, wl, work.Params{Bytes: large})
		must.Do(t, err)
		for _, what := range []string{"send shifted", "receive, posted first, left", "receive, sent first, left"} {
			if got := figure(t, results[0], fmt.Sprintf("%s %d B", what, large)); got > 10 {
				t.Errorf("%v: %s: %.1f %%", protocol, what, got)
			}
		}
	}
}

// Speculation stops when the receives of a program are late for a while, and resumes when
// they are early again, although ranks make progress only in calls (Rashti 2010 §4.4.2).
func TestSpeculationStopsAndResumes(t *testing.T) {
	var all p2p.Stats
	o := mpi.Options{
		P2P: p2p.Config{Protocol: p2p.Speculative, Adaptive: true}, Carrier: carrier.Config{Design: carrier.SRQ},
		OnFinalize: func(_ int, s mpi.Stats) {
			all.RTRsUsed += s.P2P.RTRsUsed
			all.SpeculationStopped += s.P2P.SpeculationStopped
			all.SpeculationResumed += s.P2P.SpeculationResumed
		},
	}
	const each = 60
	must.Get(mpihost.InWorld(tenGigabit(2), func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			buf, other := make([]byte, 64<<10), 1-w.Rank()
			for i := range 2 * each {
				if _, err := w.Sendrecv(nil, other, 2, nil, other, 2); err != nil {
					return err
				}
				if w.Rank() == 1 {
					if _, err := w.Recv(buf, 0, 1); err != nil {
						return err
					}
					continue
				}
				if i >= each {
					w.Compute(50 * time.Microsecond)
				}
				must.Do(t, w.Send(buf, 1, 1))
			}
			return nil
		})
	}))(t)
	// Sixteen receives are observed before it stops, and as many before it resumes.
	if all.SpeculationStopped != 1 || all.SpeculationResumed != 1 || all.RTRsUsed < each-2*16-2 {
		t.Errorf("speculation was stopped %d times and resumed %d times; then %d RTRs were used", all.SpeculationStopped, all.SpeculationResumed, all.RTRsUsed)
	}
}

// Computations that vary take other times on each rank, which the seed determines, and about as long in
// all. A platform's copies take the time of the platform.
func TestComputationsVary(t *testing.T) {
	const steps, compute = 50, time.Millisecond
	wl := must.Get(work.Find("exchange1"))(t)
	elapsed := func(variation int, seed uint64, costs *verbs.Costs) time.Duration {
		f := tenGigabit(2)
		f.Costs = costs
		p := work.Params{Iterations: steps, Bytes: 1 << 10, Compute: compute, Variation: variation, Seed: seed}
		results, _, err := inWorld(f, mpi.Options{}, wl, p)
		must.Do(t, err)
		return results[0].Time
	}
	equal, varied := elapsed(0, 1, nil), elapsed(20, 1, nil)
	// Each step takes as long as that of the later rank.
	if share := varied.Seconds() / equal.Seconds(); share < 1.01 || share > 1.2 {
		t.Errorf("with a variation of 20 %%, %d steps take %v instead of %v", steps, varied, equal)
	}
	if again, other := elapsed(20, 1, nil), elapsed(20, 2, nil); again != varied || other == varied {
		t.Errorf("%v, with the same seed again %v, with another %v", varied, again, other)
	}
	slow := elapsed(0, 1, &verbs.Costs{Copy: verbs.LinearCost{Base: time.Millisecond}})
	if slow < equal+steps*time.Millisecond {
		t.Errorf("with copies of a millisecond, %d steps take %v instead of %v", steps, slow, equal)
	}
}
