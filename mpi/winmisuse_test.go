package mpi_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
)

// Calls that the current epoch does not allow fail and leave the epoch unchanged.
func TestEpochViolationsAreRejected(t *testing.T) {
	inBothProgressModes(t, 2, func(w *mpi.World) error {
		b := make([]byte, 8)
		win := must.Get(w.WinAllocate(16))(t)
		sync := func(what string, err error) error {
			return check(errors.Is(err, mpi.ErrRMASync), "%s: %v", what, err)
		}
		req := func(_ *mpi.Request, err error) error { return err }
		_, terr := win.Test()
		must.Do(t, errors.Join(
			sync("put without an epoch", win.Put(b, 0, 0)),
			sync("get without an epoch", win.Get(b, 0, 0)),
			sync("accumulate without an epoch", win.Accumulate(b, 0, 0, mpi.Int64, mpi.Sum)),
			sync("swap without an epoch", win.CompareAndSwap(b, b, make([]byte, 8), 0, 0, mpi.Int64)),
			sync("unlock without a lock", win.Unlock(0)),
			sync("unlock of all without a lock", win.UnlockAll()),
			sync("flush without a lock", win.Flush(0)),
			sync("flush of all without a lock", win.FlushAll()),
			sync("sync without a lock", win.Sync()),
			sync("complete without start", win.Complete()),
			sync("wait without post", win.Wait()),
			sync("test without post", terr),
		))
		// Within a lock.
		if err := errors.Join(
			win.Lock(mpi.Shared, 0, 0),
			sync("a second lock", win.Lock(mpi.Shared, 0, 0)),
			sync("lock of all within a lock", win.LockAll(0)),
			sync("start within a lock", win.Start([]int{0}, 0)),
			sync("fence within a lock", win.Fence(0)),
			sync("put to a rank that is not locked", win.Put(b, 1, 0)),
			sync("flush of a rank that is not locked", win.Flush(1)),
			sync("unlock of all", win.UnlockAll()),
			sync("free", win.Free()),
			win.Lock(mpi.Exclusive, 1, 0), // each rank has its own lock
			win.Unlock(0), win.Unlock(1),
		); err != nil {
			return err
		}
		// Within a lock of all.
		must.Do(t, errors.Join(
			win.LockAll(0),
			sync("lock within a lock of all", win.Lock(mpi.Shared, 0, 0)),
			sync("unlock of one", win.Unlock(0)),
			sync("fence", win.Fence(0)),
			sync("free", win.Free()),
			win.UnlockAll(),
		))
		// Within post and start.
		other := []int{1 - w.Rank()}
		must.Do(t, errors.Join(
			win.Post(other, 0),
			sync("a second post", win.Post(other, 0)),
			win.Start(other, 0),
			sync("a second start", win.Start(other, 0)),
			sync("lock", win.Lock(mpi.Shared, 0, 0)),
			sync("fence", win.Fence(0)),
			sync("request", req(win.Rput(b, other[0], 0))),
			sync("put to a rank outside of the group", win.Put(b, w.Rank(), 0)),
			win.Complete(), win.Wait(),
		))
		// Within fences.
		if err := errors.Join(
			win.Fence(0),
			sync("request", req(win.Rget(b, 0, 0))),
			sync("flush", win.Flush(0)),
			win.Put(b, 0, 8),
			sync("lock after an operation", win.Lock(mpi.Shared, 0, 0)),
			sync("start after an operation", win.Start(other, 0)),
			sync("post after an operation", win.Post(other, 0)),
			sync("free after an operation", win.Free()),
			win.Fence(0),
			win.Lock(mpi.Shared, 0, 0), win.Unlock(0), // allowed: no operation since the fence
		); err != nil {
			return err
		}
		must.Do(t, win.Free())
		return errors.Join(
			check(errors.Is(win.Free(), mpi.ErrWin), "freed twice"),
			check(errors.Is(win.Put(b, 0, 0), mpi.ErrWin), "a put to a freed window"),
			check(errors.Is((*mpi.Win)(nil).Fence(0), mpi.ErrWin), "a fence of a nil window"),
		)
	})
}

func TestRMARejectsInvalidRangesAndArguments(t *testing.T) {
	inBothProgressModes(t, 2, func(w *mpi.World) error {
		win := must.Get(w.WinAllocate(20 - 12*w.Rank()))(t)
		if win.Size(0) != 20 || win.Size(1) != 8 || len(win.Memory()) != win.Size(w.Rank()) {
			return fmt.Errorf("sizes %d, %d", win.Size(0), win.Size(1))
		}
		must.Do(t, win.LockAll(0))
		b, c, d := make([]byte, 8), make([]byte, 8), make([]byte, 8)
		for i, x := range []struct{ err, want error }{
			{win.Put(b, 1, 1), mpi.ErrRMARange},
			{win.Put(b, 0, 13), mpi.ErrRMARange},
			{win.Get(b, 0, -1), mpi.ErrRMARange},
			{win.Get(make([]byte, 21), 0, 0), mpi.ErrRMARange},
			{win.Put(nil, 1, 9), mpi.ErrRMARange},
			{win.Put(b, 0, 1<<62), mpi.ErrRMARange},
			{win.Accumulate(b, 1, 8, mpi.Int64, mpi.Sum), mpi.ErrRMARange},
			{win.Put(b, 2, 0), mpi.ErrRank},
			{win.Put(b, -1, 0), mpi.ErrRank},
			{win.Flush(5), mpi.ErrRank},
			{win.Accumulate(b, 0, 4, mpi.Int64, mpi.Sum), mpi.ErrArg},
			{win.Accumulate(b[:6], 0, 0, mpi.Int32, mpi.Sum), mpi.ErrArg},
			{win.Accumulate(b, 0, 0, mpi.Float64, mpi.BAnd), mpi.ErrOp},
			{win.Accumulate(b, 0, 0, mpi.Int64, mpi.Op(77)), mpi.ErrOp},
			{win.Accumulate(b, 0, 0, mpi.Type(77), mpi.Sum), mpi.ErrType},
			{win.GetAccumulate(b, c[:4], 0, 0, mpi.Int32, mpi.Sum), mpi.ErrArg},
			{win.GetAccumulate(b, nil, 0, 0, mpi.Int32, mpi.Sum), mpi.ErrArg},
			{win.GetAccumulate(b, b, 0, 0, mpi.Int32, mpi.Sum), mpi.ErrRMAConflict},
			{win.FetchAndOp(b, c, 0, 0, mpi.Int32, mpi.Sum), mpi.ErrArg},
			{win.CompareAndSwap(b[:4], c[:4], d, 0, 0, mpi.Int32), mpi.ErrArg},
			{win.CompareAndSwap(b, c, c, 0, 0, mpi.Int64), mpi.ErrRMAConflict},
			{win.Start([]int{0, 0}, 0), mpi.ErrArg},
			{win.Post([]int{7}, 0), mpi.ErrRank},
			{win.Lock(mpi.LockKind(9), 0, 0), mpi.ErrArg},
		} {
			var e *mpi.Error
			if !errors.Is(x.err, x.want) || !errors.As(x.err, &e) {
				return fmt.Errorf("call %d: %v, want %v", i, x.err, x.want)
			}
		}
		// Empty operations and operations on ProcNull are allowed.
		r := must.Get(win.Rput(b, mpi.ProcNull, 99))(t)
		q := must.Get(win.Rget(nil, 0, 20))(t)
		must.Get(mpi.WaitAll([]*mpi.Request{r, q}))(t)
		return errors.Join(win.Put(nil, 0, 20), win.Get(b, mpi.ProcNull, -5), win.Accumulate(nil, 0, 8, mpi.Int64, mpi.Sum),
			win.Accumulate(b, 0, 0, mpi.Int64, mpi.NoOp), win.Flush(mpi.ProcNull), win.UnlockAll(), win.Free())
	})
}

// Accumulates are atomic on memory that NIC atomics cannot cover completely.
func TestAccumulateOnUnalignedWindow(t *testing.T) {
	inBothProgressModes(t, 3, func(w *mpi.World) error {
		mem := make([]byte, 64)
		for _, part := range [][]byte{mem[1:14], mem[:13], nil} {
			clear(mem)
			win := must.Get(w.WinCreate(part))(t)
			must.Do(t, win.Fence(0))
			if len(part) > 0 {
				for i := range 13 {
					must.Do(t, win.Accumulate([]byte{byte(i)}, 1, i, mpi.Byte, mpi.Sum))
				}
			}
			must.Do(t, win.Fence(0))
			want := make([]byte, len(part))
			for i := range part {
				want[i] = byte(3 * i)
			}
			if w.Rank() == 1 && !bytes.Equal(part, want) {
				return fmt.Errorf("%x, want %x", mem, want)
			}
			must.Do(t, win.Free())
		}
		return nil
	})
}

// A rank that fails to create its segment does not block the others.
func TestWinCreateFailureReachesAllRanks(t *testing.T) {
	inBothProgressModes(t, 3, func(w *mpi.World) error {
		size := 8
		if w.Rank() == 2 {
			size = -1
		}
		_, err := w.WinAllocate(size)
		if w.Rank() == 2 {
			return check(errors.Is(err, mpi.ErrArg), "%v", err)
		}
		return check(errors.Is(err, mpi.ErrWin), "%v", err)
	})
}

// When a rank is lost, operations and locks that need it fail, its locks are granted to
// others, and other ranks continue.
func TestPeerLossInWindow(t *testing.T) {
	program := func(f *fabric, what string, do func(w *mpi.World, win *mpi.Win) error) func(*mpi.World) error {
		return func(w *mpi.World) error {
			win, err := w.WinAllocate(64)
			if err != nil {
				return err
			}
			if w.Rank() == 1 {
				if what == "lock that it held" || what == "shared lock that it held" {
					if err := win.Lock(mpi.Exclusive, 2, 0); err != nil {
						return err
					}
				}
				for _, r := range []int{0, 2} { // until they have the window
					if _, err := w.Sendrecv(nil, r, 1, nil, r, 2); err != nil {
						return err
					}
				}
				w.Compute(5 * time.Microsecond)
				f.kill(1)
				w.Compute(time.Hour)
			}
			if _, err := w.Sendrecv(nil, 1, 2, nil, 1, 1); err != nil && !errors.Is(err, mpi.ErrPeerLost) {
				return err
			}
			return do(w, win)
		}
	}
	lost := func(err error) error { return check(errors.Is(err, mpi.ErrPeerLost), "the call returns %v", err) }
	b := make([]byte, 64)
	for what, do := range map[string]func(w *mpi.World, win *mpi.Win) error{
		"fence": func(_ *mpi.World, win *mpi.Win) error { return lost(win.Fence(0)) },
		"lock": func(_ *mpi.World, win *mpi.Win) error {
			return lost(repeatUntilError(func() error { return lockAndUnlock(win, 1) }))
		},
		"put": func(_ *mpi.World, win *mpi.Win) error {
			return lost(repeatUntilError(func() error {
				if err := win.LockAll(mpi.NoCheck); err != nil {
					return err
				}
				err := win.Put(b, 1, 0)
				return errors.Join(err, win.UnlockAll())
			}))
		},
		"accumulate": func(_ *mpi.World, win *mpi.Win) error {
			return lost(repeatUntilError(func() error {
				if err := win.LockAll(mpi.NoCheck); err != nil {
					return err
				}
				err := win.GetAccumulate(make([]byte, 64), make([]byte, 64), 1, 0, mpi.Int64, mpi.Sum)
				return errors.Join(err, win.UnlockAll())
			}))
		},
		"start": func(_ *mpi.World, win *mpi.Win) error {
			return errors.Join(win.Start([]int{1}, 0), lost(win.Complete()))
		},
		"put after start": func(w *mpi.World, win *mpi.Win) error {
			if err := win.Start([]int{1}, 0); err != nil {
				return err
			}
			err := win.Put(b, 1, 0)
			return lost(errors.Join(err, win.Complete()))
		},
		"wait": func(_ *mpi.World, win *mpi.Win) error { return errors.Join(win.Post([]int{1}, 0), lost(win.Wait())) },
		"lock that it held": func(_ *mpi.World, win *mpi.Win) error {
			return errors.Join(win.Lock(mpi.Exclusive, 2, 0), win.Put(b, 2, 0), win.Unlock(2))
		},
		"shared lock that it held": func(_ *mpi.World, win *mpi.Win) error {
			return errors.Join(win.Lock(mpi.Shared, 2, 0), win.Put(b[:8], 2, 0), win.Unlock(2))
		},
		"free": func(_ *mpi.World, win *mpi.Win) error { return lost(win.Free()) },
	} {
		t.Run(what, func(t *testing.T) {
			for configuration, o := range configurations() {
				for seed := range uint64(3) {
					f := newFabric(t, 3, seed, false)
					f.atomics = seed != 1
					for i, err := range f.run(o, program(f, what, do)) {
						if i != 1 && (!errors.Is(err, mpi.ErrPeerLost) || !strings.Contains(err.Error(), "not all ranks can be reached")) {
							t.Errorf("%s: rank %d ends with %v", configuration, i, err)
						}
					}
					if f.now > time.Second {
						t.Errorf("%s: the ranks ended after %v", configuration, f.now)
					}
				}
			}
		})
	}
}

// repeatUntilError calls do until it fails.
func repeatUntilError(do func() error) error {
	for {
		if err := do(); err != nil {
			return err
		}
	}
}

func lockAndUnlock(win *mpi.Win, target int) error {
	if err := win.Lock(mpi.Shared, target, 0); err != nil {
		return err
	}
	return win.Unlock(target)
}
