package mpi_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
)

// placements are the hosts of ranks in several tests.
var placements = []func(rank int) int{
	func(rank int) int { return rank / 3 },
	func(rank int) int { return rank % 2 },
	func(rank int) int { return rank * rank % 3 },
}

// Operations through memory of hosts follow each other without any other synchronization, in communicators
// of all ranks, of one host and of different hosts.
func TestCollectivesThroughSharedMemory(t *testing.T) {
	for i, choices := range algorithmChoices(t) {
		for placement, hostOf := range placements {
			if testing.Short() && placement != i%len(placements) { // for the race detector
				continue
			}
			o := configurations()[[]string{"rget polling", "rput background", "speculative polling"}[placement]]
			o.Collectives = choices
			f := newFabric(t, 7, uint64(i+placement), placement == 1 || testing.Short())
			f.hostOf = hostOf
			f.succeed(o, func(w *mpi.World) error {
				node := must.Get(w.SplitNode(0))(t)
				pairs := must.Get(w.Split(w.Rank()%3, 0))(t)
				for _, c := range []*mpi.Comm{w.Comm, node, pairs} {
					for _, n := range []int{1, 300} {
						if err := repeatedCalls(c, n); err != nil {
							return fmt.Errorf("%v, placement %d, %d bytes in %v: %w", choices, placement, n, c, err)
						}
					}
				}
				return nil
			})
		}
	}
}

// repeatedCalls calls each operation that can use shared memory several times, with blocks of n bytes.
func repeatedCalls(c *mpi.Comm, n int) error {
	me, size := c.Rank(), c.Size()
	var errs []error
	check := func(what string, err error, got, want []byte) {
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%.20x, want %.20x", got, want)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	for round := range 5 {
		buf, root := make([]byte, n), round%size
		if me == root {
			buf = testMessage(round, n)
		}
		check("Bcast", c.Bcast(buf, root), buf, testMessage(round, n))
	}
	all := make([]byte, n*size)
	for round := range 5 {
		message := func(rank int) []byte { return testMessage(10*rank+round, n) }
		err := c.Gather(message(me), all, round%size)
		check("Gather", err, onlyAt(me == round%size, all), onlyAt(me == round%size, joined(size, message)))
	}
	for round := range 5 {
		message := func(rank int) []byte { return testMessage(10*rank+round, n) }
		check("Allgather", c.Allgather(message(me), all), all, joined(size, message))
	}
	for round := range 5 {
		send := joined(size, func(to int) []byte { return testMessage(100*me+10*to+round, n) })
		fromAll := joined(size, func(from int) []byte { return testMessage(100*from+10*me+round, n) })
		check("Alltoall", c.Alltoall(send, all), all, fromAll)
	}
	return errors.Join(errs...)
}

// If a rank is killed between operations, all other ranks get an error, with every algorithm that knows the
// hosts.
func TestKilledRankFailsCollectivesOfHosts(t *testing.T) {
	for op := range coll.NumOps {
		for i, a := range coll.Algorithms(op) {
			if a.Needs&coll.KnownNodes == 0 {
				continue
			}
			for placement, hostOf := range placements {
				f := newFabric(t, 7, uint64(i), placement == 2)
				f.hostOf = hostOf
				var choices coll.Choices
				choices[op] = a
				killed := (placement + i) % 7
				errs := f.run(mpi.Options{Collectives: choices}, func(w *mpi.World) error {
					userOp := testOp{must.Get(w.CreateOp(addBytes, 2, true))(t), addBytes}
					for round := 0; ; round++ {
						if round == 3 && w.Rank() == killed {
							f.kill(killed)
							w.Compute(time.Hour)
						}
						for _, c := range allCalls(w, userOp, 64) {
							if c.op == op {
								if err := c.check(c.blocking()); err != nil {
									return err
								}
							}
						}
						if round > 3 { // ranks of which no other one needs data have not noticed yet
							if err := w.Barrier(); err != nil {
								return err
							}
						}
					}
				})
				for rank, err := range errs {
					if rank == killed && err != errKilled || rank != killed && !errors.Is(err, mpi.ErrPeerLost) {
						t.Errorf("%v %s, placement %d: rank %d ends with %v", op, a.Name, placement, rank, err)
					}
				}
			}
		}
	}
}
