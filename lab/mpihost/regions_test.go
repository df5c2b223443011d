package mpihost_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// If a rank is killed, operations of others fail that wait until it has left their shared memory, also at ranks that wait for
// nothing else.
func TestKilledRankFailsOperationsThatWaitForMemory(t *testing.T) {
	for killed := range 3 {
		var o mpi.Options
		must.Do(t, o.Collectives.UnmarshalText([]byte("bcast=shared")))
		f := mpihost.Fabric{Ranks: 3, PerHost: 3, Limit: 10 * time.Minute, Script: func(w *mpihost.World) {
			w.At(time.Millisecond, func() { w.Kill(killed) })
		}}
		out, _ := mpihost.InWorld(f, func(e *transport.Env) error {
			return mpi.Run(e, o, func(w *mpi.World) error {
				if w.Rank() == killed { // it starts no operation
					w.Compute(time.Hour)
				}
				var requests []*mpi.Request
				for range 20 {
					requests = append(requests, must.Get(w.Ibcast(make([]byte, 8), (killed+1)%3))(t))
				}
				_, err := requests[19].Wait()
				return err
			})
		})
		for i, r := range out.Ranks {
			if i != killed && !errors.Is(r.Err, mpi.ErrPeerLost) {
				t.Errorf("rank %d is killed: rank %d ends with %v", killed, i, r.Err)
			}
		}
	}
}
