package work_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// inWorld runs a workload on a simulated fabric and returns the results of all ranks.
func inWorld(f mpihost.Fabric, o mpi.Options, wl *work.Workload, p work.Params) ([]work.Result, mpihost.Outcome, error) {
	results := make([]work.Result, f.Ranks)
	out, err := mpihost.InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) (err error) {
			results[w.Rank()], err = wl.Run(w, p)
			return err
		})
	})
	return results, out, err
}

// checkResults returns an error unless all ranks of a workload have verified, with the same result.
func checkResults(wl *work.Workload, results []work.Result) error {
	r := results[0]
	if r.Checks == 0 || r.Verified == 0 || r.Time == 0 || r.Iterations == 0 || r.Ranks != len(results) || r.Workload != wl.Name {
		return fmt.Errorf("nothing was verified: %+v", r)
	}
	for rank, other := range results {
		if fmt.Sprint(other) != fmt.Sprint(r) {
			return fmt.Errorf("rank %d has another result: %+v, not %+v", rank, other, r)
		}
	}
	return nil
}

// Every workload verifies on a number of ranks that is no power of two, if it can run on one. The
// powers of two are those of TestAllWorkloadsOverAllDesigns and of the patterns of papers.
func TestAllWorkloadsVerify(t *testing.T) {
	for _, wl := range work.All() {
		ranks := 7
		if wl.Check(ranks, work.Params{}) != nil {
			ranks = 9
		}
		if wl.Check(ranks, work.Params{}) != nil {
			continue
		}
		t.Run(fmt.Sprintf("%s/%d", wl.Name, ranks), func(t *testing.T) {
			f := mpihost.Fabric{Ranks: ranks, PerHost: 2, Limit: time.Minute}
			results, _, err := inWorld(f, mpi.Options{}, wl, work.Params{})
			must.Do(t, err)
			must.Do(t, checkResults(wl, results))
			t.Log(results[0])
		})
	}
}

// Results are right with every design, provider and protocol.
func TestAllWorkloadsOverAllDesigns(t *testing.T) {
	for i, design := range carrier.Designs() {
		for k, wl := range work.All() {
			// Each workload runs with every second design; providers, protocols and modes
			// alternate. .ci/rotate runs all combinations.
			if (i+k)%2 == 1 {
				continue
			}
			f := mpihost.Fabric{Ranks: 4, PerHost: 1 + k%2, Provider: []string{"softroce", "dgiwarp"}[(i+k)/2%2], Limit: time.Minute}
			if (i+k)%3 == 0 {
				f.Impair = []impair.Spec{{LossPPM: 5000}}
			}
			o := mpi.Options{Carrier: carrier.Config{Design: design}, Progress: mpi.ProgressMode(k % 2)}
			o.P2P.Protocol, o.P2P.EagerLimit = []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative}[(i+k)%3], 512
			results, out, err := inWorld(f, o, wl, work.Params{})
			if err == nil {
				err = checkResults(wl, results)
			}
			if err != nil {
				t.Errorf("%s by %s on %s, %v, %v: %v after %v", wl.Name, design, f.Provider, o.P2P.Protocol, o.Progress, err, out.Elapsed)
			}
		}
	}
}

// Two runs with the same seed are identical, and another seed gives other data.
func TestSameParametersSameRun(t *testing.T) {
	for _, name := range []string{"cg", "superlu", "radix", "amg"} {
		wl := must.Get(work.Find(name))(t)
		f := mpihost.Fabric{Ranks: 4, Limit: time.Minute}
		run := func(seed uint64) (string, uint64) {
			results, out, err := inWorld(f, mpi.Options{}, wl, work.Params{Seed: seed})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return fmt.Sprint(results[0], out.Elapsed), out.Events
		}
		first, events := run(1)
		if again, n := run(1); again != first || n != events {
			t.Errorf("%s: %s with %d events, then %s with %d", name, first, events, again, n)
		}
		if name == "amg" {
			continue // its results do not contain the values
		}
		if other, n := run(2); other == first && n == events {
			t.Errorf("%s: seeds 1 and 2 gave the same run", name)
		}
	}
}

// The report of a hang names the peers and tags of pending requests.
func TestHungErrorListsPendingRequests(t *testing.T) {
	_, err := mpihost.InWorld(mpihost.Fabric{Ranks: 2, Limit: time.Second}, func(e *transport.Env) error {
		return mpi.Run(e, mpi.Options{}, func(w *mpi.World) error {
			peer := 1 - w.Rank()
			if w.Rank() == 0 {
				if _, err := w.Issend(make([]byte, 24), peer, 5); err != nil {
					return err
				}
			}
			_, err := w.Recv(nil, peer, 9)
			return err
		})
	})
	for _, want := range []string{"rank 0: a send of 24 bytes to rank 1 with tag 5, a receive from rank 1 with tag 9", "rank 1: a receive from rank 0 with tag 9"} {
		if hung := new(mpihost.HungError); !errors.As(err, &hung) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %q", err, want)
		}
	}
}
