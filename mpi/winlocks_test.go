package mpi

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Waiting ranks get an exclusive lock in the order of their requests.
func TestExclusiveLockExcludesOthers(t *testing.T) {
	inBothProgressModes(t, 5, func(w *World) error {
		win := must.Get(w.WinAllocate(16))(t)
		for range 4 {
			must.Do(t, win.Lock(Exclusive, 3, 0))
			both := make([]byte, 16)
			must.Do(t, errors.Join(win.Get(both, 3, 0), win.Flush(3)))
			if at64(both, 0) != at64(both, 1) {
				return fmt.Errorf("%d and %d", at64(both, 0), at64(both, 1))
			}
			next := u64(at64(both, 0) + 1)
			must.Do(t, errors.Join(win.Put(next, 3, 0), win.Flush(3), win.Put(next, 3, 8), win.Unlock(3)))
		}
		must.Do(t, w.Barrier())
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
		win := must.Get(w.WinAllocate(8))(t)
		color := 0
		if w.Rank() == 0 {
			color = 1
		}
		c := must.Get(w.Split(color, 0))(t)
		if w.Rank() > 0 {
			must.Do(t, win.Lock(Shared, 0, 0))
			if err := c.Barrier(); err != nil { // all of them have it, or this would never end
				return err
			}
			if w.Rank() == 1 {
				must.Do(t, w.Send(nil, 0, 1))
			}
			for range 10 {
				must.Do(t, errors.Join(win.Accumulate(u64(1), 0, 0, Uint64, Sum), win.Flush(0)))
			}
			return errors.Join(win.Unlock(0), win.Free())
		}
		must.Get(w.Recv(nil, 1, 1))(t)
		must.Do(t, win.Lock(Exclusive, 0, 0))
		return errors.Join(check(at64(win.Memory(), 0) == 30, "%x", win.Memory()), win.Unlock(0), win.Free())
	})
}

func TestLockAll(t *testing.T) {
	inBothProgressModes(t, 4, func(w *World) error {
		win := must.Get(w.WinAllocate(8 * w.Size()))(t)
		must.Do(t, win.LockAll(0))
		var reqs []*Request
		for to := range w.Size() {
			r := must.Get(win.Rput(u64(uint64(100+w.Rank())), to, 8*w.Rank()))(t)
			reqs = append(reqs, r)
		}
		must.Get(WaitAll(reqs))(t)
		must.Do(t, errors.Join(win.FlushAll(), w.Barrier(), win.Sync()))
		for r := range w.Size() {
			if at64(win.Memory(), r) != uint64(100+r) {
				return fmt.Errorf("%x", win.Memory())
			}
		}
		must.Do(t, w.Barrier())
		old, got := make([]byte, 8), make([]byte, 8)
		next := (w.Rank() + 1) % w.Size()
		a := must.Get(win.RgetAccumulate(u64(1), old, next, 8*w.Rank(), Uint64, Sum))(t)
		must.Get(a.Wait())(t)
		b := must.Get(win.Raccumulate(u64(1), next, 8*w.Rank(), Uint64, Sum))(t)
		must.Get(b.Wait())(t)
		must.Do(t, win.Flush(next))
		g := must.Get(win.Rget(got, next, 8*w.Rank()))(t)
		must.Get(g.Wait())(t)
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
		win := must.Get(w.WinAllocate(8))(t)
		switch w.Rank() {
		case 1: // holds the lock until rank 0 has started its put
			must.Do(t, win.Lock(Exclusive, 2, 0))
			must.Do(t, w.Send(nil, 0, 1))
			must.Get(w.Recv(nil, 0, 2))(t)
			w.Compute(20 * time.Microsecond)
			was := make([]byte, 8)
			must.Do(t, errors.Join(win.Get(was, 2, 0), win.Flush(2), check(at64(was, 0) == 0, "the window was written while locked")))
			must.Do(t, win.Unlock(2))
		case 0:
			must.Get(w.Recv(nil, 1, 1))(t)
			must.Do(t, errors.Join(win.LockAll(0), win.Put(u64(9), 2, 0), w.Send(nil, 1, 2), win.UnlockAll()))
		}
		return errors.Join(w.Barrier(), check(w.Rank() != 2 || at64(win.Memory(), 0) == 9, "%x", win.Memory()), win.Free())
	})
}
