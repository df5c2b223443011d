package mpi

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Waiting ranks get an exclusive lock in the order of their requests.
func TestExclusiveLockExcludesOthers(t *testing.T) {
	inBothProgressModes(t, 5, func(w *World) error {
		win, err := w.WinAllocate(16)
		if err != nil {
			return err
		}
		for range 4 {
			if err := win.Lock(Exclusive, 3, 0); err != nil {
				return err
			}
			both := make([]byte, 16)
			if err := errors.Join(win.Get(both, 3, 0), win.Flush(3)); err != nil {
				return err
			}
			if at64(both, 0) != at64(both, 1) {
				return fmt.Errorf("%d and %d", at64(both, 0), at64(both, 1))
			}
			next := u64(at64(both, 0) + 1)
			if err := errors.Join(win.Put(next, 3, 0), win.Flush(3), win.Put(next, 3, 8), win.Unlock(3)); err != nil {
				return err
			}
		}
		if err := w.Barrier(); err != nil {
			return err
		}
		if w.Rank() == 3 && (at64(win.Memory(), 0) != 20 || at64(win.Memory(), 1) != 20) {
			return fmt.Errorf("%x", win.Memory())
		}
		return win.Free()
	})
}

// Shared locks are held together but not with an exclusive lock, and a request for an
// exclusive lock does not starve.
func TestSharedLocksAreHeldTogether(t *testing.T) {
	inBothProgressModes(t, 4, func(w *World) error {
		win, err := w.WinAllocate(8)
		if err != nil {
			return err
		}
		color := 0
		if w.Rank() == 0 {
			color = 1
		}
		c, err := w.Split(color, 0)
		if err != nil {
			return err
		}
		if w.Rank() > 0 {
			if err := win.Lock(Shared, 0, 0); err != nil {
				return err
			}
			if err := c.Barrier(); err != nil { // all of them have it, or this would never end
				return err
			}
			if w.Rank() == 1 {
				if err := w.Send(nil, 0, 1); err != nil {
					return err
				}
			}
			for range 10 {
				if err := errors.Join(win.Accumulate(u64(1), 0, 0, Uint64, Sum), win.Flush(0)); err != nil {
					return err
				}
			}
			return errors.Join(win.Unlock(0), win.Free())
		}
		if _, err := w.Recv(nil, 1, 1); err != nil {
			return err
		}
		if err := win.Lock(Exclusive, 0, 0); err != nil {
			return err
		}
		return errors.Join(check(at64(win.Memory(), 0) == 30, "%x", win.Memory()), win.Unlock(0), win.Free())
	})
}

func TestLockAll(t *testing.T) {
	inBothProgressModes(t, 4, func(w *World) error {
		win, err := w.WinAllocate(8 * w.Size())
		if err != nil {
			return err
		}
		if err := win.LockAll(0); err != nil {
			return err
		}
		var reqs []*Request
		for to := range w.Size() {
			r, err := win.Rput(u64(uint64(100+w.Rank())), to, 8*w.Rank())
			if err != nil {
				return err
			}
			reqs = append(reqs, r)
		}
		if _, err := WaitAll(reqs); err != nil {
			return err
		}
		if err := errors.Join(win.FlushAll(), w.Barrier(), win.Sync()); err != nil {
			return err
		}
		for r := range w.Size() {
			if at64(win.Memory(), r) != uint64(100+r) {
				return fmt.Errorf("%x", win.Memory())
			}
		}
		if err := w.Barrier(); err != nil {
			return err
		}
		old, got := make([]byte, 8), make([]byte, 8)
		next := (w.Rank() + 1) % w.Size()
		a, err := win.RgetAccumulate(u64(1), old, next, 8*w.Rank(), Uint64, Sum)
		if err != nil {
			return err
		}
		if _, err := a.Wait(); err != nil {
			return err
		}
		b, err := win.Raccumulate(u64(1), next, 8*w.Rank(), Uint64, Sum)
		if err != nil {
			return err
		}
		if _, err := b.Wait(); err != nil {
			return err
		}
		if err := win.Flush(next); err != nil {
			return err
		}
		g, err := win.Rget(got, next, 8*w.Rank())
		if err != nil {
			return err
		}
		if _, err := g.Wait(); err != nil {
			return err
		}
		if at64(old, 0) != uint64(100+w.Rank()) || at64(got, 0) != uint64(102+w.Rank()) {
			return fmt.Errorf("%d, %d", at64(old, 0), at64(got, 0))
		}
		return errors.Join(win.FlushLocal(next), win.FlushLocalAll(), win.UnlockAll(), win.Free())
	})
}

func TestLockNoCheckSendsNoRequest(t *testing.T) {
	f := newFabric(t, 2, 1, false)
	f.succeed(Options{}, func(w *World) error {
		win, err := w.WinAllocate(8)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			err = errors.Join(win.Lock(Exclusive, 1, NoCheck), win.Put(u64(1), 1, 0), win.Unlock(1),
				win.LockAll(NoCheck), win.Put(u64(2), 1, 0), win.UnlockAll(), w.Barrier(),
				win.Start([]int{1}, NoCheck), win.Put(u64(3), 1, 0), win.Complete())
			words := w.Stats().Window.ControlMessages
			words[6] = 0 // the complete
			return errors.Join(err, check(words == [16]uint64{}, "messages %v", words), win.Free())
		}
		err = errors.Join(win.Post([]int{0}, NoCheck), w.Barrier(), win.Wait())
		return errors.Join(err, check(at64(win.Memory(), 0) == 3, "%x", win.Memory()), win.Free())
	})
}

// Operations in a LockAll epoch wait for the holder of an exclusive lock, without blocking
// their origin.
func TestLockAllOperationsWaitForExclusiveLock(t *testing.T) {
	inBothProgressModes(t, 3, func(w *World) error {
		win, err := w.WinAllocate(8)
		if err != nil {
			return err
		}
		switch w.Rank() {
		case 1: // holds the lock until rank 0 has started its put
			if err := win.Lock(Exclusive, 2, 0); err != nil {
				return err
			}
			if err := w.Send(nil, 0, 1); err != nil {
				return err
			}
			if _, err := w.Recv(nil, 0, 2); err != nil {
				return err
			}
			w.Compute(20 * time.Microsecond)
			was := make([]byte, 8)
			if err := errors.Join(win.Get(was, 2, 0), win.Flush(2), check(at64(was, 0) == 0, "the window was written while locked")); err != nil {
				return err
			}
			if err := win.Unlock(2); err != nil {
				return err
			}
		case 0:
			if _, err := w.Recv(nil, 1, 1); err != nil {
				return err
			}
			if err := errors.Join(win.LockAll(0), win.Put(u64(9), 2, 0), w.Send(nil, 1, 2), win.UnlockAll()); err != nil {
				return err
			}
		}
		return errors.Join(w.Barrier(), check(w.Rank() != 2 || at64(win.Memory(), 0) == 9, "%x", win.Memory()), win.Free())
	})
}
