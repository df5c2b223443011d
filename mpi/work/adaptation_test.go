package work_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// reusePlatform has hosts of the published measurements of buffer reuse.
const reusePlatform = "pe2850dc-ib-connectx-mvapich2"

// runOnPlatform runs a workload on hosts of reusePlatform, and returns its result and the statistics
// of the carrier of rank 0.
func runOnPlatform(t *testing.T, name string, ranks int, cfg carrier.Config, p work.Params) (work.Result, carrier.Stats) {
	t.Helper()
	var stats carrier.Stats
	f := mpihost.Fabric{Ranks: ranks, Limit: time.Minute}
	f.SetPlatform(must.Get(nics.LoadPlatform(reusePlatform))(t))
	cfg.Design = carrier.SRQ
	o := mpi.Options{Carrier: cfg, OnFinalize: func(rank int, s mpi.Stats) {
		if rank == 0 {
			stats = s.Carrier.(carrier.Stats)
		}
	}}
	results, _, err := inWorld(f, o, must.Get(work.Find(name))(t), p)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return results[0], stats
}

// Large buffers are registered once, or at each use if there is no cache. Their registration makes
// messages from new buffers slower.
func TestRegistrationCache(t *testing.T) {
	const trips = 20
	on, off := carrier.Config{Reuse: memory.Reuse{Off: true}}, carrier.Config{CacheBytes: -1, Reuse: memory.Reuse{Off: true}}
	p := work.Params{Bytes: 64 << 10, Iterations: trips}
	same, sameStats := runOnPlatform(t, "pingpong", 2, on, p)
	fresh, freshStats := runOnPlatform(t, "fresh", 2, on, p)
	_, none := runOnPlatform(t, "pingpong", 2, off, p)
	const messages = 2 * (trips + 1) // of a rank, with those of the warm-up
	if first := sameStats.Registrations.Misses; first != 2 || freshStats.Registrations.Misses != messages || none.Registrations.Misses != messages {
		t.Errorf("%d registrations of two buffers, %d of %d new ones, %d without a cache", first, freshStats.Registrations.Misses, messages, none.Registrations.Misses)
	}
	if none.Registrations.Regions != 0 {
		t.Errorf("%d regions are in a disabled cache", none.Registrations.Regions)
	}
	if fresh.Time <= same.Time {
		t.Errorf("messages from new buffers take %v, from the same %v", fresh.Time, same.Time)
	}
}

// Reuse does not slow down a program that waits for each send, like LU: its data is copied,
// because it would otherwise wait for acknowledgements.
func TestBlockingSendsAreCopied(t *testing.T) {
	p := work.Params{Class: work.ClassS, Iterations: 40}
	without, _ := runOnPlatform(t, "lu", 4, carrier.Config{Reuse: memory.Reuse{Off: true}}, p)
	with, stats := runOnPlatform(t, "lu", 4, carrier.Config{}, p)
	if s, c := without.Sending, without.Communicating; s <= 0 || c <= s+without.Waited || c >= without.Time {
		t.Errorf("of %v, %v are in sends, %v in waits and %v in all calls", without.Time, s, without.Waited, c)
	}
	if with.Time.Seconds() > 1.02*without.Time.Seconds() {
		t.Errorf("lu takes %v with reuse and %v without", with.Time, without.Time)
	}
	if stats.ReuseThresholds == nil {
		t.Error("the runtime has not measured when reuse pays")
	}
}
