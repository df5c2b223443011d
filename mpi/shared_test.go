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

// manyCalls returns several calls of each operation that can use shared memory, with blocks of n bytes and buffers of their
// own.
func manyCalls(c *mpi.Comm, count, n int) (all []testCall) {
	me, size := c.Rank(), c.Size()
	for i := range count {
		root := i % size
		message := func(rank int) []byte { return testMessage(100*i+rank, n) }
		toRank := func(from, to int) []byte { return testMessage(100*i+10*from+to, n) }
		buf := make([]byte, n)
		if me == root {
			buf = message(root)
		}
		gathered, everywhere, received := make([]byte, n*size), make([]byte, n*size), make([]byte, n*size)
		own, send := message(me), joined(size, func(to int) []byte { return toRank(me, to) })
		all = append(all,
			newTestCall(coll.Bcast, "Bcast", buf, message(root), func() error { return c.Bcast(buf, root) },
				func() (*mpi.Request, error) { return c.Ibcast(buf, root) }, func() (*mpi.Request, error) { return c.BcastInit(buf, root) }),
			newTestCall(coll.Gather, "Gather", onlyAt(me == root, gathered), onlyAt(me == root, joined(size, message)), func() error { return c.Gather(own, gathered, root) },
				func() (*mpi.Request, error) { return c.Igather(own, gathered, root) }, func() (*mpi.Request, error) { return c.GatherInit(own, gathered, root) }),
			newTestCall(coll.Allgather, "Allgather", everywhere, joined(size, message), func() error { return c.Allgather(own, everywhere) },
				func() (*mpi.Request, error) { return c.Iallgather(own, everywhere) }, func() (*mpi.Request, error) { return c.AllgatherInit(own, everywhere) }),
			newTestCall(coll.Alltoall, "Alltoall", received, joined(size, func(from int) []byte { return toRank(from, me) }), func() error { return c.Alltoall(send, received) },
				func() (*mpi.Request, error) { return c.Ialltoall(send, received) }, func() (*mpi.Request, error) { return c.AlltoallInit(send, received) }),
		)
	}
	return all
}

// startAll starts calls, and checks them in another order on each rank. Ranks start at different times, and some calls are
// blocking.
func startAll(w *mpi.World, calls []testCall, start func(i int) (*mpi.Request, error)) error {
	requests := make([]*mpi.Request, len(calls))
	for i := range calls {
		if i%7 == w.Rank() {
			w.Compute(20 * time.Microsecond)
		}
		r, err := start(i)
		if err != nil {
			return err
		}
		requests[i] = r
	}
	for k := range calls {
		i := (k*5 + w.Rank()*11) % len(calls)
		_, err := requests[i].Wait()
		if err = calls[i].check(err); err != nil {
			return err
		}
	}
	return nil
}

// Many operations use shared memory at the same time. Those for which there is no region wait for earlier ones, also
// persistent ones, which are started again and again, and with blocking ones between.
func TestManyOperationsShareMemory(t *testing.T) {
	var waits uint64
	for i, choices := range algorithmChoices(t) {
		if testing.Short() && i%12 > 0 { // for the race detector
			continue
		}
		o := configurations()[[]string{"rget polling", "rput background", "speculative polling"}[i%3]]
		o.Collectives = choices
		f := newFabric(t, 7, uint64(i), i%2 == 1)
		f.hostOf = placements[i%len(placements)]
		f.succeed(o, func(w *mpi.World) error {
			shares := false
			for op := range coll.NumOps {
				shares = must.Get(w.Algorithm(op, 40))(t).UsesShared() || shares
			}
			node := must.Get(w.SplitNode(0))(t)
			for _, c := range []*mpi.Comm{w.Comm, node} {
				calls := manyCalls(c, 23, 40)
				if err := startAll(w, calls, func(i int) (*mpi.Request, error) { return calls[i].start() }); err != nil {
					return fmt.Errorf("%v, nonblocking in %v: %w", choices, c, err)
				}
				var persistent []*mpi.Request
				for i := range calls {
					persistent = append(persistent, must.Get(calls[i].prepare())(t))
				}
				for round := range 3 {
					err := startAll(w, calls, func(i int) (*mpi.Request, error) { return persistent[i], persistent[i].Start() })
					if err == nil && round == 1 {
						err = calls[2].check(calls[2].blocking())
					}
					if err != nil {
						return fmt.Errorf("%v, persistent in %v: %w", choices, c, err)
					}
				}
			}
			s := w.Stats().Shared
			if shares && s.Operations == 0 || s.Fallbacks > 0 {
				return fmt.Errorf("%v: %+v", choices, s)
			}
			if w.Rank() == 0 {
				waits += s.Waits
			}
			return nil
		})
	}
	if waits == 0 {
		t.Error("no operation waited for memory")
	}
}

// An operation that needs more shared memory than there is uses another algorithm, in all ways.
func TestOperationsWithTooMuchDataShareNoMemory(t *testing.T) {
	const n = 33 << 20
	var o mpi.Options
	must.Do(t, o.Collectives.UnmarshalText([]byte("allgather=shared-direct")))
	f := newFabric(t, 2, 1, false)
	f.hostOf = func(int) int { return 0 }
	f.succeed(o, func(w *mpi.World) error {
		own, all := make([]byte, n), make([]byte, 2*n)
		must.Do(t, w.Allgather(own, all))
		must.Get(must.Get(w.Iallgather(own, all))(t).Wait())(t)
		if s := w.Stats().Shared; s != (mpi.SharedStats{Fallbacks: 2}) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
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
