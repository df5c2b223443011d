package work_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// A program that starts many small sends and then computes does not delay their delivery.
func TestDeferredSendsAreFlushedWhileProgramComputes(t *testing.T) {
	const count, computeTime = 20, 10 * time.Millisecond
	f := mpihost.Fabric{Ranks: 2, Limit: time.Minute}
	o := mpi.Options{Carrier: carrier.Config{Design: carrier.SRQ}}
	_, err := mpihost.InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			for round := range 3 {
				must.Do(t, w.Barrier())
				began := w.Wtime()
				if w.Rank() == 1 {
					for range count {
						if _, err := w.Recv(make([]byte, 8), 0, 1); err != nil {
							return err
						}
					}
					if took := w.Wtime() - began; took > computeTime/10 {
						return fmt.Errorf("round %d: the messages arrived after %v", round, took)
					}
					continue
				}
				var all []*mpi.Request
				for range count {
					r := must.Get(w.Isend(make([]byte, 8), 1, 1))(t)
					all = append(all, r)
				}
				w.Compute(computeTime)
				if _, err := mpi.WaitAll(all); err != nil {
					return err
				}
				if n := w.Stats().Carrier.(carrier.Stats).Coalesced; n == 0 {
					return fmt.Errorf("round %d: no message was deferred", round)
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}
