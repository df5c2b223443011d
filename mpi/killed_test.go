package mpi_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// runAllOperations uses all kinds of communication in a loop and returns the first error.
func runAllOperations(w *mpi.World) error {
	win, err := w.WinAllocate(64 * w.Size())
	if err != nil {
		return err
	}
	right, left := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
	for i := 0; ; i++ {
		n := sizes[i%len(sizes)]
		buf := make([]byte, n)
		if _, err := w.Sendrecv(testMessage(i, n), right, i%3, buf, left, mpi.AnyTag); err != nil {
			return err
		}
		if err := win.Fence(0); err != nil {
			return err
		}
		err := errors.Join(
			win.Put(testMessage(i, 64), right, 64*w.Rank()),
			win.Accumulate(u64(1), left, 64*right, mpi.Uint64, mpi.Sum))
		if err = errors.Join(err, win.Fence(mpi.NoSucceed)); err != nil {
			return err
		}
		if err := win.Lock(mpi.LockKind(i%2), left, 0); err != nil {
			return err
		}
		err = win.GetAccumulate(u64(1), make([]byte, 8), left, 0, mpi.Uint64, mpi.Sum)
		if err = errors.Join(err, win.Unlock(left)); err != nil {
			return err
		}
		if err := errors.Join(win.Post([]int{left}, 0), win.Start([]int{right}, 0)); err != nil {
			return err
		}
		err = win.Put(testMessage(i, 10), right, 64*w.Rank())
		if err = errors.Join(err, win.Complete(), win.Wait()); err != nil {
			return err
		}
		r, err := w.Ibarrier()
		if err != nil {
			return err
		}
		if err := w.Allreduce(mpi.InPlace, make([]byte, 80), mpi.Int32, mpi.Max); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
		if err := w.Alltoall(make([]byte, 90*w.Size()), make([]byte, 90*w.Size())); err != nil {
			return err
		}
		c, err := w.Split(w.Rank()%2, i)
		if err != nil {
			return err
		}
		if err := errors.Join(c.Bcast(buf, 0), c.Free()); err != nil {
			return err
		}
	}
}

// Whenever a rank is killed or a link is cut, all ranks soon end with an error, and no
// rank accesses unregistered memory.
func TestPeerLossAtAnyTimeFailsAllRanks(t *testing.T) {
	seeds := uint64(15)
	if testing.Short() {
		seeds = 10
	}
	for name, o := range configurations() {
		for _, fault := range []string{"killed", "cut"} {
			t.Run(fmt.Sprintf("%s %s", name, fault), func(t *testing.T) {
				for seed := range seeds {
					f := newFabric(t, 4, seed, false)
					f.atomics, f.lacksCredits = seed%2 == 0, seed%3 == 0
					when := time.Duration(seed*seed) * 2 * time.Microsecond
					f.at(when, func() {
						if fault == "killed" {
							f.killLocked(2)
						} else {
							f.nics[2].losePeer(1)
							f.nics[1].losePeer(2)
						}
					})
					for i, err := range f.run(o, runAllOperations) {
						if !errors.Is(err, mpi.ErrPeerLost) && (fault != "killed" || i != 2) {
							t.Errorf("seed %d: rank %d ends with %v", seed, i, err)
						}
					}
					if f.now > when+time.Second {
						t.Errorf("seed %d: failure at %v, but the ranks ended at %v", seed, when, f.now)
					}
				}
			})
		}
	}
}
