package work_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/verbs"
)

// pingpongTime makes ranks 0 and 1 send messages in turn, with the buffers that a plan
// returns for each. It returns the time of rank 0 and the statistics of its carrier.
func pingpongTime(t *testing.T, cfg carrier.Config, times int, buffers func() func(trip int) (send, recv []byte)) (time.Duration, carrier.Stats) {
	t.Helper()
	return pingpongTimeAt(t, fastPath(), cfg, times, buffers)
}

// pingpongTimeAt is pingpongTime with other costs.
func pingpongTimeAt(t *testing.T, costs *verbs.Costs, cfg carrier.Config, times int, buffers func() func(trip int) (send, recv []byte)) (time.Duration, carrier.Stats) {
	t.Helper()
	var took time.Duration
	var stats carrier.Stats
	o := mpi.Options{Carrier: platformConfig(cfg)}
	o.P2P.Protocol, o.P2P.EagerLimit = p2p.RGET, eagerMax
	_, err := mpihost.InWorld(platformFabric(2, costs), func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			me, next := w.Rank(), buffers()
			must.Do(t, w.Barrier())
			began := w.Wtime()
			for trip := range times {
				send, recv := next(trip)
				send[trip%len(send)], recv[trip%len(recv)] = byte(trip), byte(trip+1)
				in, err := w.Irecv(recv, 1-me, 1)
				if err == nil && me == 1 {
					_, err = in.Wait()
				}
				if err != nil {
					return err
				}
				out, err := w.Isend(send, 1-me, 1) // a blocking Send would be copied
				if err != nil {
					return err
				}
				if _, err := mpi.WaitAll([]*mpi.Request{in, out}); err != nil {
					return err
				}
				if recv[trip%len(recv)] != byte(trip) {
					return fmt.Errorf("rank %d: message %d is wrong", me, trip)
				}
			}
			if me == 0 {
				took = w.Wtime() - began
				stats = w.Stats().Carrier.(carrier.Stats)
			}
			return nil
		})
	})
	must.Do(t, err)
	return took, stats
}

// A program like AMG2006, with few buffers that are used just often enough to count as
// frequent, loses time by reuse, mostly by useless registrations. With 20 % as the minimum
// share of frequent buffers the table stops growing, and the loss is a third (Rashti 2010
// §5.5.2: 2 %, and 6 % without).
func TestAdaptationLimitsCostOfRareReuse(t *testing.T) {
	const (
		size, apart   = 2 << 10, 4 << 10
		hot, uses     = 40, 40 // 28 uses make a buffer of 2 KB frequent, and 114 would pay
		cold, fewUses = 1400, 3
	)
	plan := func() func(int) ([]byte, []byte) {
		memory, recv := make([]byte, (hot+cold)*apart), make([]byte, size)
		return func(trip int) ([]byte, []byte) {
			i := trip / fewUses // setup first, then the solver
			if trip >= cold*fewUses {
				i = cold + trip%hot
			}
			return memory[i*apart:][:size], recv
		}
	}
	run := func(r memory.Reuse) (time.Duration, carrier.Stats) {
		return pingpongTime(t, carrier.Config{Design: carrier.SRQ, Reuse: r}, cold*fewUses+hot*uses, plan)
	}
	without, _ := run(memory.Reuse{Off: true})
	grows, all := run(memory.Reuse{Buckets: 512, MinFrequent: -1})
	stops, some := run(memory.Reuse{Buckets: 512})
	loses := func(d time.Duration) float64 { return 100 * (d.Seconds()/without.Seconds() - 1) }
	if loses(grows) < 4 || loses(grows) > 9 || loses(stops) > 2.5 {
		t.Errorf("reuse takes %.1f %% longer, with adaptation %.1f %%", loses(grows), loses(stops))
	}
	if all.Reuse.Stopped || all.Reuse.Buffers != hot+cold || all.Reuse.FrequentBuffers != hot || all.Registrations.Misses != hot {
		t.Errorf("without adaptation: %+v", all)
	}
	if !some.Reuse.Stopped || some.Reuse.Buffers > 700 || some.Reuse.UntrackedUses == 0 {
		t.Errorf("with adaptation: %+v", some.Reuse)
	}
	t.Logf("%.1f %% longer, with adaptation %.1f %%: %+v", loses(grows), loses(stops), some.Reuse)
}

// Registration makes large messages from new buffers take several times as long, most of
// all those just too large to copy (Rashti 2010 §3.5: 6.7 times at 16 KB on InfiniBand). Without
// the cache all buffers are new.
func TestRegistrationCache(t *testing.T) {
	latency := func(cfg carrier.Config, size, reusePercent int) float64 {
		const trips = 60
		took, stats := pingpongTime(t, cfg, trips, func() func(int) ([]byte, []byte) {
			memory, fresh := make([]byte, 2*(trips+1)*size), 0
			return func(trip int) ([]byte, []byte) {
				at := 0
				if trip*(100-reusePercent)/100 != (trip-1)*(100-reusePercent)/100 && trip > 0 {
					fresh++
					at = fresh
				}
				return memory[2*at*size:][:size], memory[(2*at+1)*size:][:size]
			}
		})
		if regions := stats.Registrations.Regions; cfg.CacheBytes < 0 && regions > 0 {
			t.Errorf("%d regions are in a disabled cache", regions)
		}
		return took.Seconds() / (2 * trips)
	}
	on, off := carrier.Config{Design: carrier.SRQ, CacheBytes: 1 << 30, Reuse: memory.Reuse{Off: true}}, carrier.Config{Design: carrier.SRQ, CacheBytes: -1, Reuse: memory.Reuse{Off: true}}
	ratio := func(size, reuse int) float64 { return latency(on, size, reuse) / latency(on, size, 100) }
	if r := ratio(4<<10, 0); r > 1.7 {
		t.Errorf("4 KB from new buffers: %.2f times as long", r)
	}
	none, half, large := ratio(16<<10, 0), ratio(16<<10, 50), ratio(256<<10, 0)
	if none < 5 || none > 8 || half < 2.5 || half > none-2 || large > none/2 || large < 1.1 {
		t.Errorf("16 KB from new buffers: %.1f times as long, from half of them %.1f; 256 KB %.1f", none, half, large)
	}
	if r := latency(off, 16<<10, 100) / latency(on, 16<<10, 0); r < 0.9 || r > 1.3 {
		t.Errorf("16 KB without a cache take %.2f times as long as new buffers", r)
	}
	t.Logf("16 KB %.1f and %.1f, 256 KB %.1f times as long", none, half, large)
}

// Reuse does not slow down a program that waits for each send, like LU: its data is copied,
// because it would otherwise wait for acknowledgements.
func TestBlockingSendsAreCopied(t *testing.T) {
	wl := must.Get(work.Find("lu"))(t)
	run := func(off bool) time.Duration {
		o := mpi.Options{Carrier: platformConfig(carrier.Config{Design: carrier.SRQ, Reuse: memory.Reuse{Off: off}})}
		o.P2P.EagerLimit = eagerMax
		results, _, err := inWorld(platformFabric(4, fastPath()), o, wl, work.Params{Class: work.ClassS, Iterations: 40})
		must.Do(t, err)
		return results[0].Time
	}
	if without, with := run(true), run(false); with.Seconds() > 1.02*without.Seconds() {
		t.Errorf("lu takes %v with reuse and %v without", with, without)
	}
}
