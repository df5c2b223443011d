package work_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// A rank whose NIC has lost its address cannot reach itself by it: its operations on itself
// fail, and do not hang.
func TestSelfAccessFailsWithoutAddress(t *testing.T) {
	for _, provider := range nics.Names() {
		f := mpihost.Fabric{Ranks: 2, Provider: provider, Limit: limit, Events: events}
		var world *mpihost.World
		f.Script = func(w *mpihost.World) { world = w }
		_, err := mpihost.InWorld(f, func(e *transport.Env) error {
			return mpi.Run(e, mpi.Options{}, func(w *mpi.World) error {
				win, err := w.WinAllocate(64)
				if err != nil {
					return err
				}
				if w.Rank() == 1 {
					_, err := w.Recv(nil, 0, 1)
					if !errors.Is(err, mpi.ErrPeerLost) {
						return fmt.Errorf("rank 1: %w", err)
					}
					return nil
				}
				if err := world.Port(0, 0).RemoveAddr(e.NICs[0].Addr); err != nil {
					return err
				}
				e.Proc.Sleep(time.Millisecond)
				one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
				err = win.Lock(mpi.Exclusive, 0, 0)
				if err == nil {
					err = errors.Join(win.FetchAndOp(one, make([]byte, 8), 0, 0, mpi.Uint64, mpi.Sum), win.Unlock(0))
				}
				if err == nil {
					return errors.New("an operation on itself succeeded")
				}
				return nil
			})
		})
		if hung := new(mpihost.HungError); errors.As(err, &hung) || !errors.Is(err, mpi.ErrPeerLost) { // of finalize
			t.Errorf("%s: %v", provider, err)
		}
	}
}
