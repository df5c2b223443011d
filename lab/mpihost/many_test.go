package mpihost

import (
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

func setupWithoutICRC() nics.Setup { return nics.Setup{Options: nics.Options{"icrc": false}} }

// 1024 ranks use at most 64 KiB each.
func TestManyRanks(t *testing.T) {
	const size, budget = 1024, 64 << 10 // bytes per rank
	var most uint64
	began := time.Now()
	must.Get(InWorld(Fabric{Ranks: size}, func(e *transport.Env) error {
		must.Do(t, e.Control.Send((e.Rank+1)%size, []byte{byte(e.Rank)}))
		if _, err := e.Control.Recv((e.Rank+size-1)%size, verbs.Forever); err != nil {
			return err
		}
		must.Do(t, e.Control.Barrier(verbs.Forever))
		if e.Rank == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = m.HeapAlloc + m.StackInuse
		}
		return e.Control.Barrier(verbs.Forever)
	}))(t)
	t.Logf("%d ranks: %v, %d KiB per rank", size, time.Since(began), most/size>>10)
	if most > size*budget {
		t.Errorf("%d KiB per rank, want at most %d", most/size>>10, budget>>10)
	}
}
