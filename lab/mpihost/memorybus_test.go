package mpihost_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// Copies of the ranks of a host share its memory bus, and take as long as alone if it is fast enough.
func TestCopiesShareTheMemoryBus(t *testing.T) {
	const (
		bytes = 3 << 20
		alone = 2 * time.Millisecond
		rate  = 8 * bytes * 1000 // in bits a second: each time that the bytes cross the bus takes 1 ms
	)
	for name, c := range map[string]struct {
		ranks, perHost, cached int
		rate                   uint64
		want                   time.Duration
	}{
		"no bus":                       {4, 4, 0, 0, alone},
		"slower than a copy":           {1, 1, 0, rate, 3 * time.Millisecond},
		"faster than a copy":           {1, 1, 0, 2 * rate, alone},
		"two ranks":                    {2, 2, 0, 2 * rate, 3 * time.Millisecond},
		"four ranks":                   {4, 4, 0, 2 * rate, 6 * time.Millisecond},
		"one rank on each host":        {4, 1, 0, 2 * rate, alone},
		"four ranks, all bytes cached": {4, 4, bytes, rate, 4 * time.Millisecond},
		"four ranks, a third cached":   {4, 4, bytes / 3, 2 * rate, 14 * time.Millisecond / 3},
	} {
		took := make([]time.Duration, c.ranks)
		f := mpihost.Fabric{
			Ranks: c.ranks, PerHost: c.perHost, Limit: time.Minute, MemoryBps: c.rate,
			Costs: &verbs.Costs{Control: 1000, Post: 100, Poll: 50, Copy: verbs.LinearCost{CachedBytes: c.cached}},
		}
		_, err := mpihost.InWorld(f, func(e *transport.Env) error {
			began := e.Proc.Now()
			e.Charge(verbs.WorkCopy, bytes, alone)
			took[e.Rank] = e.Proc.Now() - began
			return nil
		})
		must.Do(t, err)
		for rank, d := range took {
			if slack := 20 * time.Microsecond; d < c.want-slack || d > c.want+slack {
				t.Errorf("%s: the copy of rank %d takes %v, want %v", name, rank, d, c.want)
			}
		}
	}
}
