package mpi_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
)

// Every call of a collective operation is recorded with its time, by communicator, whether it blocks or
// not; those of the runtime are not.
func TestArrivalsAreRecorded(t *testing.T) {
	const step = time.Millisecond
	f := newFabric(t, 3, 1, false)
	stats := make([]mpi.Stats, 3)
	began := make([]time.Duration, 3)
	o := mpi.Options{RecordArrivals: true, OnFinalize: func(rank int, s mpi.Stats) { stats[rank] = s }}
	f.succeed(o, func(w *mpi.World) error {
		part := must.Get(w.Split(min(w.Rank(), 1), 0))(t)
		began[w.Rank()] = w.Wtime()
		w.Compute(time.Duration(w.Rank()) * step)
		must.Do(t, w.Bcast(make([]byte, 100), 0))
		r := must.Get(part.AllgatherInit(make([]byte, 5), make([]byte, 5*part.Size())))(t)
		w.Compute(step)
		for range 2 {
			must.Do(t, r.Start())
			must.Get(r.Wait())(t)
		}
		r = must.Get(w.Ibarrier())(t)
		return must.Err(r.Wait())
	})
	for rank, s := range stats {
		if s.Arrivals == nil || len(s.Arrivals.Comms) != 2 {
			t.Fatalf("rank %d: %+v", rank, s.Arrivals)
		}
		world, part := s.Arrivals.Comms[0], s.Arrivals.Comms[1]
		if len(world.Calls) != 2 || world.Calls[0] != (mpi.CollectiveLog{Op: "bcast", Bytes: 100, At: began[rank] + time.Duration(rank)*step}) || world.Calls[1].Op != "barrier" {
			t.Errorf("rank %d: %+v", rank, world)
		}
		if part.First != min(rank, 1) || part.Size != 1+min(rank, 1) || len(part.Calls) != 2 || part.Calls[1].Op != "allgather" || part.Calls[1].Bytes != 5 || part.Calls[0].At < world.Calls[0].At+step {
			t.Errorf("rank %d: %+v", rank, part)
		}
		if n := len(s.Arrivals.Messages); n != map[int]int{0: 8}[rank] { // 1 to 128 bytes
			t.Errorf("rank %d: the times of messages of %d sizes", rank, n)
		}
	}
}
