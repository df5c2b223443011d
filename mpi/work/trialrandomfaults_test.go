package work_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/verbs"
)

// fault is a fault of a rank, or of its host.
type fault string

const (
	rankKilled fault = "is killed"
	hostDown   fault = "loses all links"
	rankAborts fault = "aborts"
	railDown   fault = "loses a rail"
)

// detectTimeout bounds the time in which ranks detect a fault: each waits up to
// carrier.Config.PeerTimeout, perhaps for a peer that waits for another.
const detectTimeout = 90 * time.Second

// After a fault of any rank at any time no rank hangs or has wrong data: ranks return
// mpi.ErrPeerLost, or need no peer any more.
func TestRandomFaultsAreDetected(t *testing.T) {
	t.Parallel()
	each(t, 3, func(seed uint64) error {
		c := chooserOf(seed)
		return runWithFault(c, pick(c, rankKilled, hostDown, rankAborts), draw(c, seed))
	})
}

// If a host keeps one rail, all ranks continue and verify their results.
func TestRandomRailFaultsAreSurvived(t *testing.T) {
	t.Parallel()
	each(t, 1, func(seed uint64) error {
		c := chooserOf(seed)
		t := draw(c, seed)
		t.fabric.Rails = 2
		return runWithFault(c, railDown, t)
	})
}

// runWithFault runs a trial without a fault, and then with one at a random time.
func runWithFault(c chooser, injected fault, t *trial) error {
	faultless, err := t.run(func(int, time.Duration, work.Result, error) {})
	if err != nil {
		return fmt.Errorf("%v\n%w (without a fault, after %v)", t, err, faultless.Elapsed)
	}
	d := &faultTrial{trial: t, fault: injected, rank: c.IntN(t.fabric.Ranks), rail: c.IntN(t.fabric.Rails)}
	d.at = faultless.Elapsed * time.Duration(c.IntN(1000)) / 1000
	if err := d.runAndCheck(); err != nil {
		return fmt.Errorf("rank %d %s at %v: %v\n%w", d.rank, d.fault, d.at, t, err)
	}
	return nil
}

// faultTrial is a trial with a fault of a rank at a time.
type faultTrial struct {
	*trial
	fault      fault
	rank, rail int
	at         time.Duration
	// returned are the times at which workloads have returned, by rank; -1 if they have not.
	returned []time.Duration
}

// runAndCheck runs the trial, and returns an error for each rank with a wrong outcome.
func (d *faultTrial) runAndCheck() error {
	d.returned = make([]time.Duration, d.fabric.Ranks)
	for i := range d.returned {
		d.returned[i] = -1
	}
	d.fabric.Script = func(w *mpihost.World) { w.At(d.at, func() { d.inject(w) }) }
	d.onStart = func(e *transport.Env) {
		if d.fault == rankAborts && e.Rank == d.rank { // at any time, like an error handler
			e.Go("aborts", func(p verbs.Proc) {
				p.Sleep(d.at)
				e.Control.Abort(7, "test abort")
			})
		}
	}
	out, err := d.run(func(rank int, at time.Duration, _ work.Result, _ error) { d.returned[rank] = at })
	var hung *mpihost.HungError
	if errors.As(err, &hung) {
		return err
	}
	var wrong []error
	within := detectTimeout
	if d.fault == railDown { // each pair of ranks detects it, when it needs the rail
		within = 10 * detectTimeout
	}
	if out.Elapsed > d.at+within {
		wrong = append(wrong, fmt.Errorf("the last rank ended at %v", out.Elapsed))
	}
	if d.fault == rankAborts {
		return errors.Join(append(wrong, d.checkAbort(out, err))...)
	}
	for i, r := range out.Ranks {
		if err := d.checkRank(i, &r); err != nil {
			wrong = append(wrong, fmt.Errorf("rank %d: %w", i, err))
		}
	}
	return errors.Join(wrong...)
}

func (d *faultTrial) inject(w *mpihost.World) {
	switch d.fault {
	case rankKilled:
		w.Kill(d.rank)
	case hostDown:
		w.LinkDown(w.Host(d.rank), -1)
	case railDown:
		w.LinkDown(w.Host(d.rank), d.rail)
	}
}

// checkRank checks the outcome of a rank.
func (d *faultTrial) checkRank(rank int, r *mpihost.RankOutcome) error {
	switch {
	case r.Killed && (d.fault != rankKilled || rank != d.rank):
		return errors.New("it was killed")
	case r.Killed:
		return nil
	case r.Err != nil && !errors.Is(r.Err, mpi.ErrPeerLost):
		return r.Err
	case r.Err != nil && !d.disconnects():
		return fmt.Errorf("a rank failed that could continue: %w", r.Err)
	case r.Err == nil && d.disconnects() && d.duringWork():
		return errors.New("the workload succeeded in spite of the fault")
	}
	return nil
}

// disconnects reports whether the fault separates ranks. Ranks of one host need no links if
// they share memory.
func (d *faultTrial) disconnects() bool {
	return d.fault == rankKilled || d.fault == hostDown && (d.fabric.Ranks > d.fabric.PerHost || d.o.Carrier.NoSharedMemory)
}

// duringWork reports whether the killed rank, or with another fault any rank, was in its
// workload at the time of the fault.
func (d *faultTrial) duringWork() bool {
	if d.fault == rankKilled {
		return d.returned[d.rank] < 0
	}
	for _, at := range d.returned {
		if at < 0 || at > d.at {
			return true
		}
	}
	return false
}

// checkAbort checks the outcome of a run with an abort.
func (d *faultTrial) checkAbort(out mpihost.Outcome, err error) error {
	if out.Ranks[d.rank].Ended < d.at { // before the abort
		return err
	}
	var abort *mpihost.AbortError
	if !errors.As(err, &abort) || abort.Code != 7 || abort.Rank != d.rank || out.Elapsed > d.at {
		return fmt.Errorf("after an abort at %v the run ended at %v with %v", d.at, out.Elapsed, err)
	}
	return nil
}
