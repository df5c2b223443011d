package mpi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// Fence is MPI_Win_fence: all ranks of the window call it. It completes the operations of the fence
// epoch and, unless a has NoSucceed, opens the next epoch.
func (w *Win) Fence(a Assert) error {
	return w.call("Fence", func(e *window.Window) error {
		if err := e.CheckFence(); err != nil {
			return err
		}
		defer w.c.beginCollective(misuse.Call{Name: "Win.Fence", Root: -1, Assert: uint8(a & (NoPrecede | NoSucceed))})()
		w.c.rank.waitUntil(e.AllRemoteComplete)
		if w.c.rank.races != nil {
			w.c.rank.races.fence(w, a)
		}
		if t := w.c.rank.calls; t != nil {
			t.fenced(w, a)
		}
		return errors.Join(w.fenceBarrier(a), e.Fence(a))
	})
}

// fenceBarrier is the barrier of a Fence. It is left out if, by the assertions, no operation precedes
// the fence and none follows. The race checker counts it as synchronisation only if some may precede.
func (w *Win) fenceBarrier(a Assert) error {
	switch call := w.c.barrierCall(); {
	case call.err != nil || a&NoPrecede == 0:
		return w.c.runInternal(call)
	case a&NoSucceed == 0:
		return w.c.runCollective(&call)
	}
	return nil
}

// Post opens an exposure epoch of the local window for a group of ranks.
func (w *Win) Post(group []int, a Assert) error {
	return w.callWithGroup("Post", (*window.Window).Post, group, a)
}

// Start opens an access epoch to the windows of a group, without waiting for their Post: operations
// and Complete do.
func (w *Win) Start(group []int, a Assert) error {
	return w.callWithGroup("Start", (*window.Window).Start, group, a)
}

// callWithGroup calls open, which opens an epoch, with the lock held, if the group is valid.
func (w *Win) callWithGroup(name string, open func(*window.Window, []int, Assert) error, group []int, a Assert) error {
	return w.call(name, func(e *window.Window) error {
		if err := w.checkGroup(group); err != nil {
			return err
		}
		if err := open(e, group, a); err != nil {
			return err
		}
		if w.c.rank.races != nil {
			w.c.rank.races.openEpoch(w, name, group, a)
		}
		if t := w.c.rank.calls; t != nil {
			t.epochOpened(w, name, group, a)
		}
		return nil
	})
}

// waitFor progresses until test is true or fails, and returns its error. The caller holds the lock.
func (w *Win) waitFor(test func() (bool, error)) (err error) {
	w.c.rank.waitUntil(func() (done bool) {
		done, err = test()
		return done || err != nil
	})
	return err
}

// Complete closes the access epoch of Start.
func (w *Win) Complete() error {
	return w.call("Complete", func(e *window.Window) error {
		if t := w.c.rank.calls; t != nil {
			t.waitsFor(t.windows[w].AwaitPosts(t.place()))
		}
		if err := w.waitFor(e.CanComplete); err != nil {
			return err
		}
		if w.c.rank.races != nil {
			w.c.rank.races.complete(w)
		}
		if t := w.c.rank.calls; t != nil {
			t.windows[w].Completed()
		}
		return e.Complete()
	})
}

// Wait closes the exposure epoch of Post, when the whole group has called Complete.
func (w *Win) Wait() error {
	return w.call("Win.Wait", func(e *window.Window) error {
		t := w.c.rank.calls
		if t != nil {
			t.waitsFor(t.windows[w].AwaitCompletes(t.place()))
		}
		err := w.waitFor(e.Test)
		w.closedExposure()
		if t != nil && err == nil {
			t.windows[w].Waited()
		}
		return err
	})
}

// Test closes the exposure epoch of Post if the whole group has called Complete, and reports
// whether it did. It does not block.
func (w *Win) Test() (bool, error) {
	return lockedResult(w.comm(), "Win.Test", w.check(), func() (done bool, err error) {
		w.c.rank.pollOnce(func() bool {
			if !done && err == nil { // not after a success, which has closed the epoch
				done, err = w.engine.Test()
			}
			return done || err != nil
		})
		if done {
			w.closedExposure()
		}
		if t := w.c.rank.calls; t != nil && done {
			t.windows[w].Waited()
		}
		return done, err
	})
}

// closedExposure tells the race checker that the exposure epoch is closed.
func (w *Win) closedExposure() {
	if w.c.rank.races != nil {
		w.c.rank.races.closeExposure(w)
	}
}

// Lock opens an access epoch to a rank's window and waits for the lock. A target grants
// locks in the order of the requests.
func (w *Win) Lock(kind LockKind, target int, a Assert) error {
	return w.call("Lock", func(e *window.Window) error {
		if target == ProcNull {
			return nil
		}
		if err := w.checkTarget(target); err != nil {
			return err
		}
		if err := e.Lock(kind, target, a); err != nil {
			return err
		}
		t := w.c.rank.calls
		if t != nil {
			t.lock(w, kind, target, a)
		}
		if err := w.waitFor(func() (bool, error) { return e.TestLock(target) }); err != nil {
			return err
		}
		if w.c.rank.races != nil {
			w.c.rank.races.lock(w, target, kind, a)
		}
		if t != nil {
			t.windows[w].Locked(target)
		}
		return nil
	})
}

// Unlock closes the access epoch; all its operations are complete at the target.
func (w *Win) Unlock(target int) error {
	return w.waitOps("Unlock", target, (*window.Window).CheckUnlock, (*window.Window).RemoteComplete, (*window.Window).Unlock)
}

// Flush waits until all operations on a rank's window are complete at the target.
func (w *Win) Flush(target int) error {
	return w.waitOps("Flush", target, (*window.Window).CheckFlush, (*window.Window).RemoteComplete, (*window.Window).TakeError)
}

// FlushLocal waits until all operations on a rank's window are locally complete.
func (w *Win) FlushLocal(target int) error {
	return w.waitOps("FlushLocal", target, (*window.Window).CheckFlush, (*window.Window).LocalComplete, (*window.Window).TakeError)
}

// waitOps calls check, waits until complete is true, and calls end. For ProcNull it does nothing.
func (w *Win) waitOps(name string, target int, check func(*window.Window, int) error, complete func(*window.Window, int) bool, end func(*window.Window, int) error) error {
	return w.call(name, func(e *window.Window) error {
		if target == ProcNull {
			return nil
		}
		if err := w.checkTarget(target); err != nil {
			return err
		}
		if err := check(e, target); err != nil {
			return err
		}
		t := w.c.rank.calls
		if t != nil {
			t.trace.note("rank %d", target)
			t.waitsForLocks(w)
		}
		w.c.rank.waitUntil(func() bool { return complete(e, target) })
		if w.c.rank.races != nil {
			w.c.rank.races.completeOps(w, name, target)
		}
		if t != nil && name == "Unlock" {
			t.windows[w].Unlocked(target)
		}
		return end(e, target)
	})
}

// LockAll opens a shared access epoch to the windows of all ranks.
func (w *Win) LockAll(a Assert) error {
	return w.call("LockAll", func(e *window.Window) error {
		if err := e.LockAll(a); err != nil {
			return err
		}
		if w.c.rank.races != nil {
			w.c.rank.races.lock(w, racecheck.AllTargets, Shared, a)
		}
		if t := w.c.rank.calls; t != nil {
			t.windows[w].LockAll(t.place())
		}
		return nil
	})
}

// UnlockAll closes the epoch of LockAll; all its operations are complete at their targets.
func (w *Win) UnlockAll() error {
	return w.waitAllOps("UnlockAll", (*window.Window).CheckUnlockAll, (*window.Window).AllRemoteComplete, (*window.Window).UnlockAll)
}

// FlushAll waits until all operations are complete at their targets.
func (w *Win) FlushAll() error {
	return w.waitAllOps("FlushAll", (*window.Window).CheckFlushAll, (*window.Window).AllRemoteComplete, (*window.Window).TakeErrors)
}

// FlushLocalAll waits until all operations are locally complete.
func (w *Win) FlushLocalAll() error {
	return w.waitAllOps("FlushLocalAll", (*window.Window).CheckFlushAll, (*window.Window).AllLocalComplete, (*window.Window).TakeErrors)
}

// waitAllOps calls check, waits until complete reports true, and calls end.
func (w *Win) waitAllOps(name string, check func(*window.Window) error, complete func(*window.Window) bool, end func(*window.Window) error) error {
	return w.call(name, func(e *window.Window) error {
		if err := check(e); err != nil {
			return err
		}
		t := w.c.rank.calls
		if t != nil {
			t.waitsForLocks(w)
		}
		w.c.rank.waitUntil(func() bool { return complete(e) })
		if w.c.rank.races != nil {
			w.c.rank.races.completeOps(w, name, racecheck.AllTargets)
		}
		if t != nil && name == "UnlockAll" {
			t.windows[w].UnlockAll()
		}
		return end(e)
	})
}

// Sync synchronises the private and public copies of the local window. The memory model is
// unified, so it only polls once for progress.
func (w *Win) Sync() error {
	return w.call("Sync", func(e *window.Window) error {
		if err := e.CheckFlushAll(); err != nil { // no lock epoch is open
			return fmt.Errorf("Sync: %w", err)
		}
		w.c.rank.pollOnce(func() bool { return false })
		return nil
	})
}
