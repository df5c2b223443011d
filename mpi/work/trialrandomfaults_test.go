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

// disaster is something that happens to a rank, or to the host that it is on.
type disaster string

const (
	killed  disaster = "is killed"
	cutOff  disaster = "is cut off"
	aborts  disaster = "aborts"
	railCut disaster = "loses a rail"
)

// soon is how long others may take to notice: a program that could still answer has
// carrier.Config.PeerTimeout to do so, and behind each who ends with an error there may be
// another who waits for it.
const soon = 90 * time.Second

// Whenever it happens, in the midst of whatever, to any rank, however ranks are set up:
// nobody hangs, and nobody has wrong data. All ranks end with mpi.ErrPeerLost, or have
// everything that they need already.
func TestRandomLoss(t *testing.T) {
	t.Parallel()
	each(t, 6, func(seed uint64) error {
		l := fromSeed(seed)
		return strike(l, pick(l, killed, cutOff, aborts), draw(l, seed))
	})
}

// Where a rail is left, everybody goes on, with the right answer.
func TestRandomRails(t *testing.T) {
	t.Parallel()
	each(t, 3, func(seed uint64) error {
		l := fromSeed(seed)
		t := draw(l, seed)
		t.fabric.Rails = 2
		return strike(l, railCut, t)
	})
}

// strike has something happen in the midst of a trial.
func strike(l lots, what disaster, t *trial) error {
	undisturbed, err := t.run(func(int, time.Duration, work.Result, error) {})
	if err != nil {
		return fmt.Errorf("%v\n%w (undisturbed, after %v)", t, err, undisturbed.Elapsed)
	}
	d := &loss{trial: t, what: what, victim: l.IntN(t.fabric.Ranks), rail: l.IntN(t.fabric.Rails)}
	d.when = undisturbed.Elapsed * time.Duration(l.IntN(1000)) / 1000
	if err := d.suffer(); err != nil {
		return fmt.Errorf("rank %d %s at %v: %v\n%w", d.victim, d.what, d.when, t, err)
	}
	return nil
}

// loss is a trial with a disaster in it.
type loss struct {
	*trial
	what         disaster
	victim, rail int
	when         time.Duration
	// returned are the times at which workloads have ended, by rank; -1 if they have not.
	returned []time.Duration
}

// suffer runs the trial, and says what is wrong with how it ended.
func (d *loss) suffer() error {
	d.returned = make([]time.Duration, d.fabric.Ranks)
	for i := range d.returned {
		d.returned[i] = -1
	}
	d.fabric.Script = func(w *mpihost.World) { w.At(d.when, func() { d.happen(w) }) }
	d.begins = func(e *transport.Env) {
		if d.what == aborts && e.Rank == d.victim { // in the midst of anything, as an error handler may
			e.Go("aborts", func(p verbs.Proc) {
				p.Sleep(d.when)
				e.Control.Abort(7, "enough")
			})
		}
	}
	out, err := d.run(func(rank int, at time.Duration, _ work.Result, _ error) { d.returned[rank] = at })
	var hung *mpihost.HungError
	if errors.As(err, &hung) {
		return err
	}
	var wrong []error
	within := soon
	if d.what == railCut { // each pair of ranks finds out for itself, when it needs the rail
		within = 10 * soon
	}
	if out.Elapsed > d.when+within {
		wrong = append(wrong, fmt.Errorf("the last rank has ended at %v", out.Elapsed))
	}
	if d.what == aborts {
		return errors.Join(append(wrong, d.aborted(out, err))...)
	}
	for i, r := range out.Ranks {
		if err := d.judge(i, &r); err != nil {
			wrong = append(wrong, fmt.Errorf("rank %d: %w", i, err))
		}
	}
	return errors.Join(wrong...)
}

func (d *loss) happen(w *mpihost.World) {
	switch d.what {
	case killed:
		w.Kill(d.victim)
	case cutOff:
		w.LinkDown(w.Host(d.victim), -1)
	case railCut:
		w.LinkDown(w.Host(d.victim), d.rail)
	}
}

// judge says what is wrong with how a rank has ended.
func (d *loss) judge(rank int, r *mpihost.RankOutcome) error {
	switch {
	case r.Killed != (d.what == killed && rank == d.victim && r.Killed):
		return errors.New("it was killed")
	case r.Killed:
		return nil
	case r.Err != nil && !errors.Is(r.Err, mpi.ErrPeerLost):
		return r.Err
	case r.Err != nil && !d.harmful():
		return fmt.Errorf("it could go on: %w", r.Err)
	case r.Err == nil && d.harmful() && d.needed():
		return errors.New("it ends well, though not all have been there to the end")
	}
	return nil
}

// harmful reports whether ranks need what is gone. Those of one host do without cables, if
// they have memory in common.
func (d *loss) harmful() bool {
	return d.what == killed || d.what == cutOff && (d.fabric.Ranks > d.fabric.PerHost || d.o.Carrier.NoSharedMemory)
}

// needed reports whether some rank was still at work then: all others must meet it.
func (d *loss) needed() bool {
	if d.what == killed {
		return d.returned[d.victim] < 0
	}
	for _, at := range d.returned {
		if at < 0 || at > d.when {
			return true
		}
	}
	return false
}

// aborted says what is wrong with how an abort has ended.
func (d *loss) aborted(out mpihost.Outcome, err error) error {
	if out.Ranks[d.victim].Ended < d.when { // it was faster
		return err
	}
	var abort *mpihost.AbortError
	if !errors.As(err, &abort) || abort.Code != 7 || abort.Rank != d.victim || out.Elapsed > d.when {
		return fmt.Errorf("an abort at %v ends at %v with %v", d.when, out.Elapsed, err)
	}
	return nil
}
