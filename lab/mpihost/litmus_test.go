package mpihost_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
)

// flagAfterData writes data and then a flag to rank 1, which polls the flag and reads the data. It is
// correct only if the NIC places the two WRITEs in their order. With notify, a message replaces the
// flag, after a flush: its completion comes after the data.
func flagAfterData(notify bool) func(w *mpi.World) error {
	return func(w *mpi.World) error {
		win, err := w.WinAllocate(16)
		if err == nil {
			err = win.LockAll(0)
		}
		if err != nil {
			return err
		}
		one := binary.NativeEndian.AppendUint64(nil, 1)
		if w.Rank() == 0 {
			if err := win.Put(one, 1, 0); err != nil {
				return err
			}
			if notify {
				if err := win.Flush(1); err != nil {
					return err
				}
				err = w.Send(nil, 1, 0)
			} else {
				err = win.Put(one, 1, 8)
			}
		} else {
			if notify {
				_, err = w.Recv(nil, 0, 0)
			} else {
				for binary.NativeEndian.Uint64(win.Memory()[8:]) == 0 {
					w.Compute(200 * time.Nanosecond)
				}
			}
			if binary.NativeEndian.Uint64(win.Memory()) != 1 {
				return fmt.Errorf("the flag is set, and the data has not arrived")
			}
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

func TestFlagAfterDataNeedsStrictPlacement(t *testing.T) {
	for _, c := range []struct{ notify, relaxed, fails bool }{
		{false, false, false}, {false, true, true}, {true, false, false}, {true, true, false},
	} {
		x := fewBuffers(explore.Options{Strategy: explore.PCT, Seed: 1, MaxRuns: 40})
		x.ShrinkRuns = -1                   // it takes most of the time
		x.Options.Progress = mpi.Background // rank 1 makes no calls while it polls
		x.Fabric.Link.Spray, x.Fabric.RelaxedPlacement = 4, c.relaxed
		r := must.Get(x.Run(t.Context(), flagAfterData(c.notify)))(t)
		if failed := r.Failure != nil; failed != c.fails || failed && !strings.Contains(r.Failure.Err.Error(), "the data has not arrived") {
			t.Fatalf("notify %v, relaxed placement %v: %+v", c.notify, c.relaxed, r)
		}
		if c.fails {
			t.Logf("found in run %d", r.Runs)
		}
	}
}
