package mpihost_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// multicastOptions selects the algorithms that multicast.
func multicastOptions(t *testing.T, d carrier.Design) (o mpi.Options) {
	t.Helper()
	o.Carrier.Design = d
	must.Do(t, o.Collectives.UnmarshalText([]byte("bcast=multicast,barrier=multicast")))
	return o
}

// repeated returns n bytes that depend on a number.
func repeated(b, n int) []byte { return bytes.Repeat([]byte{byte(b), byte(b >> 8), 7}, n/3+1)[:n] }

// multicastEverything broadcasts from every rank of a communicator, blocking and not, with barriers between.
func multicastEverything(c *mpi.Comm, rounds int) error {
	for round := range rounds {
		root, n := round%c.Size(), []int{0, 1, 900, 5000, 70_000}[round%5]
		var bufs [2][]byte
		for i := range bufs {
			if bufs[i] = make([]byte, n); root == c.Rank() {
				copy(bufs[i], repeated(round+i, n))
			}
		}
		r, err := c.Ibcast(bufs[0], root)
		if err != nil {
			return err
		}
		if err := c.Bcast(bufs[1], root); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
		for i := range bufs {
			if !bytes.Equal(bufs[i], repeated(round+i, n)) {
				return fmt.Errorf("round %d: wrong data of %d bytes from rank %d", round, n, root)
			}
		}
		if round%4 == 0 {
			if err := c.Barrier(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Collectives that multicast give the right results despite loss, duplication and reordering, in communicators that come and go,
// and whose members join their groups at different times.
func TestMulticastCollectivesDespiteLoss(t *testing.T) {
	for _, c := range []struct {
		design  carrier.Design
		perHost int
		ipv4    bool
		impair  impair.Spec
	}{
		{carrier.RingSRQ, 1, false, impair.Spec{}},
		{carrier.RingSRQ, 2, false, impair.Spec{LossPPM: 50_000}},
		{carrier.UD, 1, true, impair.Spec{LossPPM: 20_000, DuplicatePPM: 50_000, ReorderPPM: 50_000, ReorderDelay: 50 * time.Microsecond}},
		{carrier.Hybrid, 3, true, impair.Spec{LossPPM: 20_000, Jitter: 20 * time.Microsecond}},
	} {
		t.Run(fmt.Sprintf("%s, %d per host, %+v", c.design, c.perHost, c.impair), func(t *testing.T) {
			f := mpihost.Fabric{Ranks: 5, PerHost: c.perHost, IPv4: c.ipv4, Impair: []impair.Spec{c.impair}, Seed: 3, Limit: time.Hour}
			var multicasts, resent uint64
			_, err := mpihost.InWorld(f, func(e *transport.Env) error {
				return mpi.Run(e, multicastOptions(t, c.design), func(w *mpi.World) error {
					w.Compute(time.Duration(w.Rank()) * time.Millisecond)
					must.Do(t, multicastEverything(w.Comm, 40))
					for i := range 3 {
						sub, err := w.Split(w.Rank()%2, -w.Rank())
						must.Do(t, err)
						must.Do(t, multicastEverything(sub, 10))
						w.Compute(time.Duration(w.Rank()*i) * time.Millisecond)
						must.Do(t, sub.Free())
					}
					s := w.Stats().Carrier.(carrier.Stats)
					multicasts += s.Packets[carrier.OverMulticast]
					resent += s.MulticastResent
					return nil
				})
			})
			must.Do(t, err)
			if multicasts == 0 || resent == 0 && c.impair.LossPPM > 0 {
				t.Errorf("%d multicasts, %d of them sent again", multicasts, resent)
			}
		})
	}
}

// Without loss the root of a broadcast sends each segment once, whatever the number of ranks, and no rank sends anything else.
func TestMulticastBcastSendsEachSegmentOnce(t *testing.T) {
	for _, ranks := range []int{2, 4, 9} {
		f := mpihost.Fabric{Ranks: ranks, Limit: time.Minute}
		_, err := mpihost.InWorld(f, func(e *transport.Env) error {
			o := multicastOptions(t, carrier.RingSRQ)
			return mpi.Run(e, o, func(w *mpi.World) error {
				must.Do(t, w.Bcast(make([]byte, 8), 0)) // ranks join the group
				must.Do(t, w.Barrier())
				segment := 4096 - carrier.PrefixLen - 22 // headers of the segment and of its message
				for _, n := range []int{0, 1, segment, segment + 1, 16 << 10} {
					w.Compute(time.Millisecond) // earlier packets arrive
					before := w.Stats().Carrier.(carrier.Stats).Packets
					must.Do(t, w.Bcast(make([]byte, n), 0))
					after := w.Stats().Carrier.(carrier.Stats).Packets
					var want [len(after)]uint64
					if w.Rank() == 0 {
						want[carrier.OverMulticast] = uint64(max(1, (n+segment-1)/segment))
					}
					for i := range after {
						if sent := after[i] - before[i]; sent != want[i] {
							t.Errorf("%d bytes to %d ranks: rank %d sends %d packets by %v, want %d", n, ranks, w.Rank(), sent, carrier.Transport(i), want[i])
						}
					}
				}
				return nil
			})
		})
		must.Do(t, err)
	}
}

// A broadcast whose segment is lost takes little longer than others, though no later segment shows the loss.
func TestLostMulticastIsSoonSentAgain(t *testing.T) {
	const warmup, rounds, limit = 20, 1000, 3 * time.Millisecond
	f := mpihost.Fabric{Ranks: 4, Impair: []impair.Spec{{LossPPM: 50_000}}, Seed: 1, Limit: time.Hour}
	var resent uint64
	_, err := mpihost.InWorld(f, func(e *transport.Env) error {
		o := multicastOptions(t, carrier.RingSRQ)
		o.Progress = mpi.Background // a root that only computes answers no request
		return mpi.Run(e, o, func(w *mpi.World) error {
			for round := range rounds {
				w.Compute(time.Millisecond)
				if w.Rank() == 0 {
					w.Compute(time.Millisecond / 4) // the others wait
				}
				called := w.Wtime()
				must.Do(t, w.Bcast(make([]byte, 8), 0))
				if took := w.Wtime() - called; round >= warmup && took > limit {
					t.Errorf("broadcast %d takes rank %d %v", round, w.Rank(), took)
				}
			}
			resent += w.Stats().Carrier.(carrier.Stats).MulticastResent
			return nil
		})
	})
	must.Do(t, err)
	if resent < rounds/20 {
		t.Errorf("%d segments were sent again", resent)
	}
}

// In an allgather that gathers and multicasts, rank 0 multicasts the result in segments, from the first call on. With shared
// memory only the leaders of hosts send messages to it.
func TestMulticastAllgather(t *testing.T) {
	for _, name := range []string{"gather-multicast", "smp-gather-multicast"} {
		f := mpihost.Fabric{Ranks: 7, PerHost: 3, Limit: time.Minute, Impair: []impair.Spec{{LossPPM: 20_000}}, Seed: 5}
		_, err := mpihost.InWorld(f, func(e *transport.Env) error {
			var o mpi.Options
			must.Do(t, o.Collectives.UnmarshalText([]byte("allgather="+name)))
			return mpi.Run(e, o, func(w *mpi.World) error {
				multicasts := func() uint64 { return w.Stats().Carrier.(carrier.Stats).Packets[carrier.OverMulticast] }
				for i, n := range []int{1, 600, 9000} {
					before, got := multicasts(), make([]byte, 7*n)
					must.Do(t, w.Allgather(repeated(w.Rank()+i, n), got))
					for from := range 7 {
						if !bytes.Equal(got[from*n:][:n], repeated(from+i, n)) {
							t.Errorf("%s of %d bytes: rank %d has wrong data of rank %d", name, n, w.Rank(), from)
						}
					}
					if sent := multicasts() - before; (w.Rank() == 0) != (sent >= uint64(7*n+4095)/4096) {
						t.Errorf("%s of %d bytes: rank %d sends %d multicasts", name, n, w.Rank(), sent)
					}
				}
				return nil
			})
		})
		must.Do(t, err)
	}
}

// If a rank is killed, also one that only receives, multicasts and barriers fail at all others.
func TestKilledRankFailsMulticasts(t *testing.T) {
	for _, killed := range []int{0, 3} {
		for _, n := range []int{8, 100_000} {
			f := mpihost.Fabric{Ranks: 5, Limit: 10 * time.Minute, Script: func(w *mpihost.World) {
				w.At(time.Millisecond, func() { w.Kill(killed) })
			}}
			out, _ := mpihost.InWorld(f, func(e *transport.Env) error {
				return mpi.Run(e, multicastOptions(t, carrier.RingSRQ), func(w *mpi.World) error {
					for {
						if err := w.Bcast(make([]byte, n), 0); err != nil {
							return err
						}
					}
				})
			})
			for i, r := range out.Ranks {
				if i != killed && !errors.Is(r.Err, mpi.ErrPeerLost) {
					t.Errorf("rank %d is killed, %d bytes: rank %d ends with %v", killed, n, i, r.Err)
				}
			}
		}
	}
}
