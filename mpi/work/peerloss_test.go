package work_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// With every NIC provider, each call that needs a killed or disconnected rank fails in time.
func TestPeerLossOverNICs(t *testing.T) {
	calls := map[string]func(*mpi.World, *mpi.Win) error{
		"receive":                 func(w *mpi.World, _ *mpi.Win) error { return must.Err(w.Recv(nil, 1, 1)) },
		"probe":                   func(w *mpi.World, _ *mpi.Win) error { return must.Err(w.Probe(1, 1)) },
		"receive from any source": func(w *mpi.World, _ *mpi.Win) error { return must.Err(w.Recv(nil, mpi.AnySource, 1)) },
		"start":                   func(_ *mpi.World, win *mpi.Win) error { return errors.Join(win.Start([]int{1}, 0), win.Complete()) },
		"wait":                    func(_ *mpi.World, win *mpi.Win) error { return errors.Join(win.Post([]int{1}, 0), win.Wait()) },
		"send":                    func(w *mpi.World, _ *mpi.Win) error { return w.Ssend(make([]byte, 100_000), 1, 1) },
		"barrier":                 func(w *mpi.World, _ *mpi.Win) error { return w.Barrier() },
		"fence":                   func(_ *mpi.World, win *mpi.Win) error { return win.Fence(0) },
		"lock": func(_ *mpi.World, win *mpi.Win) error {
			for {
				if err := win.Lock(mpi.Exclusive, 1, 0); err != nil {
					return err
				}
				if err := errors.Join(win.Put(make([]byte, 64), 1, 0), win.Unlock(1)); err != nil {
					return err
				}
			}
		},
	}
	skipUnderRaceDetector(t)
	modes, faults := []mpi.ProgressMode{mpi.Polling, mpi.Background}, []string{"killed", "cut off"}
	for i, provider := range nics.Names() {
		for name, call := range calls {
			for j, mode := range modes {
				fault := faults[(i+j)%2]
				t.Run(fmt.Sprintf("%s %s %v %s", provider, name, mode, fault), func(t *testing.T) {
					f := mpihost.Fabric{Ranks: 3, Provider: provider, Limit: 5 * time.Minute}
					f.Script = func(w *mpihost.World) {
						w.At(time.Millisecond, func() {
							if fault == "killed" {
								w.Kill(1)
							} else {
								w.LinkDown(1, -1)
							}
						})
					}
					out, err := mpihost.InWorld(f, func(e *transport.Env) error {
						return mpi.Run(e, mpi.Options{Progress: mode}, func(w *mpi.World) error {
							win, err := w.WinAllocate(64)
							if err != nil {
								return err
							}
							if w.Rank() == 1 {
								w.Compute(10 * time.Millisecond)
								return must.Err(w.Recv(nil, 0, 99))
							}
							return call(w, win)
						})
					})
					for i, r := range out.Ranks {
						if i == 1 && fault == "killed" {
							continue
						}
						if !errors.Is(r.Err, mpi.ErrPeerLost) || r.Ended > 2*time.Minute {
							t.Errorf("rank %d ends after %v with %v; all: %v", i, r.Ended, r.Err, err)
						}
					}
				})
			}
		}
	}
}

// skipUnderRaceDetector skips tests in a simulated world, which runs one task at a time
// and cannot have races.
func skipUnderRaceDetector(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long simulation: -short is for the race detector, and a simulation runs one goroutine at a time")
	}
}
