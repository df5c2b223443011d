package mpi_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
)

// arrivalSizes are blocks for an eager message and for an advertised one.
var arrivalSizes = []int{8, 40000}

// parseChoices parses choices of algorithms.
func parseChoices(t *testing.T, text string) (c coll.Choices) {
	t.Helper()
	must.Do(t, c.UnmarshalText([]byte(text)))
	return c
}

// startAlltoall starts an Alltoall of blocks of n bytes, which say where they come from and go to.
func startAlltoall(w *mpi.World, n int) (recv []byte, r *mpi.Request, err error) {
	send := joined(w.Size(), func(to int) []byte { return testMessage(100*w.Rank()+to, n) })
	recv = make([]byte, len(send))
	r, err = w.Ialltoall(send, recv)
	return recv, r, err
}

// Ranks that have arrived exchange their data while a late rank is first in the order of ranks. A
// large message of the algorithm that keeps the order waits for the late rank, and a small one does not.
func TestEarlyRanksAreServedFirst(t *testing.T) {
	const late = 10 * time.Millisecond
	for _, algorithm := range []string{"direct", "arrival-direct"} {
		for _, n := range arrivalSizes {
			f := newFabric(t, 4, 1, false)
			o := mpi.Options{Collectives: parseChoices(t, "alltoall="+algorithm), P2P: configurations()["rget polling"].P2P}
			f.succeed(o, func(w *mpi.World) error {
				if err := w.Barrier(); err != nil {
					return err
				}
				if w.Rank() == 1 {
					w.Compute(late)
				}
				recv, r, err := startAlltoall(w, n)
				if err != nil {
					return err
				}
				for began := w.Wtime(); w.Rank() != 1 && w.Wtime() < began+late/2; {
					if _, done, err := r.Test(); done || err != nil {
						return fmt.Errorf("done: %v before rank 1 arrives, %w", done, err)
					}
				}
				if w.Rank() == 2 { // after rank 1 in the order of rank 0
					served := bytes.Equal(recv[:n], testMessage(2, n))
					if want := algorithm == "arrival-direct" || n == arrivalSizes[0]; served != want {
						t.Errorf("%s of %d bytes: the message from rank 0 is there: %v, want %v", algorithm, n, served, want)
					}
				}
				return must.Err(r.Wait())
			})
		}
	}
}

// A late rank sends small messages first to the ranks whose data it has.
func TestLateRankServesEarlyRanksFirst(t *testing.T) {
	f := newFabric(t, 4, 1, false)
	var order []int // of the messages of rank 0
	f.succeed(mpi.Options{Collectives: parseChoices(t, "allgather=arrival-direct")}, func(w *mpi.World) error {
		if err := w.Barrier(); err != nil {
			return err
		}
		switch w.Rank() {
		case 0:
			w.Compute(5 * time.Millisecond)
			if _, _, err := w.Iprobe(mpi.AnySource, mpi.AnyTag); err != nil { // makes progress
				return err
			}
			f.onSend = func(from, to int) {
				if from == 0 && len(order) < 3 {
					order = append(order, to)
				}
			}
		case 1, 2: // before rank 3 in the order of rank 0, and later than it
			w.Compute(20 * time.Millisecond)
		}
		return w.Allgather([]byte{byte(w.Rank())}, make([]byte, 4))
	})
	if !slices.Equal(order, []int{3, 1, 2}) {
		t.Errorf("rank 0 sends to %v", order)
	}
}

// Ranks of different hosts that exchange data through shared memory, again and again, with other sizes and
// in place.
func TestSharedDirectExchanges(t *testing.T) {
	for _, prefix := range []string{"", "arrival-"} {
		f := newFabric(t, 7, 1, false)
		f.perHost = 3
		o := mpi.Options{Collectives: parseChoices(t, fmt.Sprintf("allgather=%sshared-direct,alltoall=%[1]sshared-direct", prefix))}
		f.succeed(o, func(w *mpi.World) error {
			for round := range 20 {
				n := []int{1, 0, 300, 20000}[round%4]
				w.Compute(time.Duration((round*5+w.Rank()*3)%7) * 100 * time.Microsecond)
				for _, c := range blockCalls(w, n, 0) {
					if c.op == coll.Allgather || c.op == coll.Alltoall {
						if err := c.check(c.blocking()); err != nil {
							return fmt.Errorf("%sshared-direct, %d bytes: %w", prefix, n, err)
						}
					}
				}
			}
			return nil
		})
		if len(f.segments[0].byName) == 0 {
			t.Error("no memory is shared")
		}
	}
}

// A rank has the data of another host that has arrived, while the leader waits for a third one.
func TestSharedDataIsPickedUpByHost(t *testing.T) {
	const late = 10 * time.Millisecond
	for _, algorithm := range []string{"shared-direct", "arrival-shared-direct"} {
		f := newFabric(t, 6, 1, false)
		all := make([]byte, 6)
		early := byte(0)
		f.succeed(mpi.Options{Collectives: parseChoices(t, "allgather="+algorithm)}, func(w *mpi.World) error {
			if err := w.Barrier(); err != nil {
				return err
			}
			switch w.Rank() {
			case 2: // the leader of the next host
				w.Compute(late)
			case 0: // looks at the memory of rank 1 meanwhile
				f.at(f.now+late/2, func() { early = all[4] })
			}
			out := make([]byte, 6)
			if w.Rank() == 1 {
				out = all
			}
			return w.Allgather([]byte{byte(w.Rank() + 1)}, out)
		})
		if want := map[string]byte{"arrival-shared-direct": 5}[algorithm]; early != want || !bytes.Equal(all, []byte{1, 2, 3, 4, 5, 6}) {
			t.Errorf("%s: before rank 2 arrives, rank 1 has %d of rank 4, want %d; at the end %v", algorithm, early, want, all)
		}
	}
}

// A rank whose blocks are large while those of others are small gets an error. It waits for no receive
// that is not advertised, and its own advertised ones are forgotten.
func TestAdvertisedSizesDiffer(t *testing.T) {
	for name, o := range configurations() {
		for _, c := range []string{"allgather=direct", "allgather=arrival-direct", "allgather=arrival-bruck", "allgather=arrival-recursive-doubling"} {
			o.Collectives = parseChoices(t, c)
			f := newFabric(t, 4, 1, false)
			f.succeed(o, func(w *mpi.World) error {
				n := 8
				if w.Rank() == 3 {
					n = 40000
				}
				err := w.Allgather(make([]byte, n), make([]byte, 4*n))
				if !errors.Is(err, mpi.ErrArg) && !errors.Is(err, mpi.ErrTruncate) && (w.Rank() == 3 || err != nil) {
					return fmt.Errorf("%s, %s: Allgather returns %v", name, c, err)
				}
				if err := w.Barrier(); err != nil {
					return err
				}
				all := make([]byte, 4*40000)
				err = w.Allgather(testMessage(w.Rank(), 40000), all)
				if want := joined(4, func(rank int) []byte { return testMessage(rank, 40000) }); err != nil || !bytes.Equal(all, want) {
					return fmt.Errorf("%s, %s: wrong data, %w", name, c, err)
				}
				return nil
			})
		}
	}
}

// When a rank is lost, the others get an error, whether they wait for its arrival or for its data.
func TestArrivalAlgorithmsFailWithLostPeer(t *testing.T) {
	choices := parseChoices(t, "allgather=arrival-direct,alltoall=arrival-direct,allreduce=arrival-direct")
	inOrder := parseChoices(t, "allgather=direct,alltoall=direct,allreduce=arrival-direct")
	advance := parseChoices(t, "allgather=arrival-bruck")
	doubling := parseChoices(t, "allgather=arrival-recursive-doubling")
	shared := parseChoices(t, "allgather=shared-direct,alltoall=shared-direct")
	arrivalShared := parseChoices(t, "allgather=arrival-shared-direct,alltoall=arrival-shared-direct")
	calls := map[string]func(*mpi.World, int) error{
		"allgather": func(w *mpi.World, n int) error { return w.Allgather(make([]byte, n), make([]byte, n*w.Size())) },
		"alltoall": func(w *mpi.World, n int) error {
			return w.Alltoall(make([]byte, n*w.Size()), make([]byte, n*w.Size()))
		},
		"allreduce": func(w *mpi.World, n int) error {
			return w.Allreduce(mpi.InPlace, make([]byte, n*w.Size()), mpi.Int64, mpi.Sum)
		},
	}
	for configuration, o := range configurations() {
		for i, c := range []coll.Choices{choices, inOrder, advance, doubling, shared, arrivalShared} {
			for name, call := range calls {
				for _, n := range arrivalSizes {
					for _, concurrent := range []bool{false, true} {
						o.Collectives = c
						killed := len(configuration) % 2 // the leader of a host, or not
						f := newFabric(t, 4, uint64(i), concurrent)
						errs := f.run(o, func(w *mpi.World) error {
							if err := w.Barrier(); err != nil {
								return err
							}
							if w.Rank() == killed {
								f.kill(killed)
								w.Compute(time.Hour)
							}
							return call(w, n)
						})
						for rank, err := range errs {
							if rank != killed && !errors.Is(err, mpi.ErrPeerLost) {
								t.Errorf("%s, %s of %d bytes, concurrent %v: rank %d ends with %v", configuration, name, n, concurrent, rank, err)
							}
						}
					}
				}
			}
		}
	}
}
