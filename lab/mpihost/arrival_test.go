package mpihost_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// timesInCollective returns the sum of the times of eight ranks in an operation, which each enters after
// its delay.
func timesInCollective(t *testing.T, collectives string, delay func(rank int) time.Duration, call func(*mpi.World) error) (sum time.Duration) {
	t.Helper()
	var o mpi.Options
	must.Do(t, o.Collectives.UnmarshalText([]byte(collectives)))
	f := mpihost.Fabric{Ranks: 8, Limit: time.Minute, Seed: 1}
	_, err := mpihost.InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			for range 3 { // connects all, and synchronizes
				if err := w.Alltoall(make([]byte, 8<<10), make([]byte, 8<<10)); err != nil {
					return err
				}
				if err := w.Barrier(); err != nil {
					return err
				}
			}
			w.Compute(delay(w.Rank()))
			began := w.Wtime()
			err := call(w)
			sum += w.Wtime() - began
			return err
		})
	})
	must.Do(t, err)
	return sum
}

// If ranks arrive at different times, algorithms that serve early ranks first take less time for large
// messages than those that keep the order of ranks, and for small ones no longer than one more poll of
// each rank.
func TestArrivalAwareAlgorithmsAreNotLater(t *testing.T) {
	patterns := map[string]func(rank int) time.Duration{
		"one late":     func(rank int) time.Duration { return time.Duration(rank/7) * time.Millisecond },
		"two late":     func(rank int) time.Duration { return time.Duration(rank%4/3) * 500 * time.Microsecond },
		"one by one":   func(rank int) time.Duration { return time.Duration(rank*5%8) * 100 * time.Microsecond },
		"second first": func(rank int) time.Duration { return time.Duration((rank+1)%2) * 300 * time.Microsecond },
	}
	calls := map[string]func(n int) func(*mpi.World) error{
		"alltoall": func(n int) func(*mpi.World) error {
			return func(w *mpi.World) error { return w.Alltoall(make([]byte, 8*n), make([]byte, 8*n)) }
		},
		"allgather": func(n int) func(*mpi.World) error {
			return func(w *mpi.World) error { return w.Allgather(make([]byte, n), make([]byte, 8*n)) }
		},
	}
	if testing.Short() {
		t.Skip("virtual time runs one task at a time: there is no race to detect")
	}
	const polls = 8 * 200 * time.Nanosecond
	for name, delay := range patterns {
		for op, call := range calls {
			for _, n := range []int{8, 4 << 10, 64 << 10, 512 << 10} {
				inOrder := timesInCollective(t, op+"=direct", delay, call(n))
				byArrival := timesInCollective(t, op+"=arrival-direct", delay, call(n))
				t.Logf("%s, %s of %d bytes: %v in order, %v by arrival", op, name, n, inOrder, byArrival)
				if isLarge := n > 16<<10; isLarge && byArrival >= inOrder || byArrival > inOrder+polls {
					t.Errorf("%s, %s of %d bytes: %v in order, %v by arrival", op, name, n, inOrder, byArrival)
				}
			}
		}
	}
}
