package mpihost_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
)

// onWindow calls origin on rank 0 and target on rank 1, within an epoch of a window of 16 bytes.
func onWindow(origin, target func(w *mpi.World, win *mpi.Win) error) func(w *mpi.World) error {
	return func(w *mpi.World) error {
		win, err := w.WinAllocate(16)
		if err == nil {
			err = win.LockAll(0)
		}
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			err = origin(w, win)
		} else {
			err = target(w, win)
		}
		if err != nil {
			return err
		}
		if err := win.UnlockAll(); err != nil {
			return err
		}
		return win.Free()
	}
}

// word returns a number as window memory.
func word(n uint64) []byte { return binary.NativeEndian.AppendUint64(nil, n) }

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// pollFlag waits for the second word, and then checks the first one.
func pollFlag(w *mpi.World, win *mpi.Win) error {
	for binary.NativeEndian.Uint64(win.Memory()[8:]) == 0 {
		w.Compute(200 * time.Nanosecond)
	}
	return checkData(win)
}

func checkData(win *mpi.Win) error {
	if binary.NativeEndian.Uint64(win.Memory()) != 1 {
		return fmt.Errorf("the flag is set, and the data has not arrived")
	}
	return nil
}

// flagAfterData writes data and then a flag, which rank 1 polls.
var flagAfterData = onWindow(func(_ *mpi.World, win *mpi.Win) error {
	err := win.Put(word(1), 1, 0)
	return first(err, win.Put(word(1), 1, 8))
}, pollFlag)

// relaxed is an exploration of two ranks whose NICs place writes in any order.
func relaxed() *mpihost.Exploration {
	x := fewBuffers(explore.Options{Seed: 1, MaxRuns: 12})
	x.ShrinkRuns = -1
	x.Options.Progress = mpi.Background // rank 1 makes no calls while it polls
	x.Fabric.Link.Spray, x.Fabric.Placement = 4, sim.Relaxed
	return x
}

func TestWindowLitmusPrograms(t *testing.T) {
	for _, c := range []struct {
		name    string
		program func(w *mpi.World) error
		differs string // what the run that is not robust shows; empty if the program is robust
	}{
		{"data, flag", flagAfterData, "failure: rank 1: the flag is set, and the data has not arrived"},
		{"data, flush, flag", onWindow(func(_ *mpi.World, win *mpi.Win) error {
			return first(win.Put(word(1), 1, 0), win.Flush(1), win.Put(word(1), 1, 8))
		}, pollFlag), ""},
		{"data, flush, message", onWindow(func(w *mpi.World, win *mpi.Win) error {
			return first(win.Put(word(1), 1, 0), win.Flush(1), w.Send(nil, 1, 0))
		}, func(w *mpi.World, win *mpi.Win) error {
			_, err := w.Recv(nil, 0, 0)
			return first(err, checkData(win))
		}), ""},
		{"data, atomic flag", onWindow(func(_ *mpi.World, win *mpi.Win) error {
			return first(win.Put(word(1), 1, 0), win.Accumulate(word(1), 1, 8, mpi.Uint64, mpi.Sum))
		}, pollFlag), ""},
		{"two writes", onWindow(func(_ *mpi.World, win *mpi.Win) error {
			err := win.Put(word(1), 1, 0)
			return first(err, win.Put(word(2), 1, 0))
		}, func(*mpi.World, *mpi.Win) error { return nil }), "memory of world.window of rank 1: 01000000000000000000000000000000"},
	} {
		r, report, err := relaxed().Robust(t.Context(), c.program)
		must.Do(t, err)
		switch {
		case c.differs == "":
			if r.Verdict != mpihost.Robust || report.Failure != nil {
				t.Errorf("%s: %+v, %+v", c.name, r, report.Failure)
			}
		case r.Verdict != mpihost.NotRobust || !strings.Contains(report.Failure.Err.Error(), c.differs):
			t.Errorf("%s: %+v, %+v", c.name, r, report.Failure)
		default:
			t.Logf("%s: found in run %d: %v", c.name, report.Runs, r.Calls)
			if len(r.Calls) < 2 || r.Calls[0].Call != "Win.Put" || r.Calls[1].Call != "Win.Put" || !strings.HasSuffix(r.Calls[1].File, "litmus_test.go") {
				t.Errorf("%s: the calls whose order matters are %v", c.name, r.Calls)
			}
		}
	}
}

// A program with many results is not said to be robust, or not, after few runs.
func TestRobustIsUndecidedWithManyResults(t *testing.T) {
	x := fewBuffers(explore.Options{Seed: 1, MaxRuns: 6})
	x.Fabric.Ranks, x.ShrinkRuns = 4, -1
	r, _, err := x.Robust(t.Context(), func(w *mpi.World) error {
		if w.Rank() > 0 {
			return w.Send(nil, 0, 0)
		}
		var order []int
		for range w.Size() - 1 {
			s, err := w.Recv(nil, mpi.AnySource, 0)
			if err != nil {
				return err
			}
			order = append(order, s.Source)
		}
		return fmt.Errorf("the order is %v", order)
	})
	must.Do(t, err)
	if r.Verdict != mpihost.Undecided || r.StrongFailures == 0 {
		t.Errorf("%+v", r)
	}
}
