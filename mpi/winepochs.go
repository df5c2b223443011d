package mpi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/window"
)

// Fence closes an epoch of all ranks, and opens another unless nothing is to follow.
// It is collective.
func (w *Win) Fence(a Assert) error {
	return w.call("Fence", func(e *window.Window) error {
		if err := e.CheckFence(); err != nil {
			return err
		}
		w.c.k.waitUntil(e.AllRemoteComplete)
		var met error
		if a&(NoPrecede|NoSucceed) != NoPrecede|NoSucceed {
			met = w.c.barrier()
		}
		return errors.Join(e.Fence(a), met)
	})
}

// Post opens this rank's window to a group of ranks of the window's communicator.
func (w *Win) Post(group []int, a Assert) error {
	return w.call("Post", func(e *window.Window) error {
		if err := w.checkGroup(group); err != nil {
			return err
		}
		return e.Post(group, a)
	})
}

// Start begins operations on the windows of a group. It does not wait for their
// posts; the operations do.
func (w *Win) Start(group []int, a Assert) error {
	return w.call("Start", func(e *window.Window) error {
		if err := w.checkGroup(group); err != nil {
			return err
		}
		return e.Start(group, a)
	})
}

// Complete ends what Start began.
func (w *Win) Complete() error {
	return w.call("Complete", func(e *window.Window) (err error) {
		w.c.k.waitUntil(func() (can bool) {
			can, err = e.CanComplete()
			return can || err != nil
		})
		if err != nil {
			return err
		}
		return e.Complete()
	})
}

// Wait returns when the group of Post has completed.
func (w *Win) Wait() error {
	return w.call("Win.Wait", func(e *window.Window) (err error) {
		w.c.k.waitUntil(func() (done bool) {
			done, err = e.Test()
			return done || err != nil
		})
		return err
	})
}

// Test reports whether the group of Post has completed; if so, it does what Wait
// does.
func (w *Win) Test() (done bool, err error) {
	err = w.call("Win.Test", func(e *window.Window) (err error) {
		w.c.k.pollOnce(func() bool {
			if !done && err == nil {
				done, err = e.Test()
			}
			return done || err != nil
		})
		return err
	})
	return done, err
}

// Lock begins operations on a rank's window, alone or with others, and returns when
// it has the lock. Locks are granted in the order in which they were asked for.
func (w *Win) Lock(kind LockKind, target int, a Assert) error {
	return w.call("Lock", func(e *window.Window) error {
		if target == ProcNull {
			return nil
		}
		if err := w.checkTarget(target); err != nil {
			return err
		}
		err := e.Lock(kind, target, a)
		if err != nil {
			return err
		}
		w.c.k.waitUntil(func() (held bool) {
			held, err = e.TestLock(target)
			return held || err != nil
		})
		return err
	})
}

// Unlock ends them: all are complete at the target.
func (w *Win) Unlock(target int) error {
	return w.waitOps("Unlock", target, (*window.Window).CheckUnlock, (*window.Window).RemoteComplete, (*window.Window).Unlock)
}

// Flush returns when all operations on a rank's window are complete there.
func (w *Win) Flush(target int) error {
	return w.waitOps("Flush", target, (*window.Window).CheckFlush, (*window.Window).RemoteComplete, (*window.Window).TakeError)
}

// FlushLocal returns when the buffers of all operations on a rank's window are the
// program's again.
func (w *Win) FlushLocal(target int) error {
	return w.waitOps("FlushLocal", target, (*window.Window).CheckFlush, (*window.Window).LocalComplete, (*window.Window).TakeError)
}

// settle waits until operations on a target have come as far as is asked for.
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
		w.c.k.waitUntil(func() bool { return complete(e, target) })
		return end(e, target)
	})
}

// LockAll begins operations on the windows of all ranks, with others.
func (w *Win) LockAll(a Assert) error {
	return w.call("LockAll", func(e *window.Window) error { return e.LockAll(a) })
}

// UnlockAll ends what LockAll began: all operations are complete at their targets.
func (w *Win) UnlockAll() error {
	return w.waitAllOps("UnlockAll", (*window.Window).CheckUnlockAll, (*window.Window).AllRemoteComplete, (*window.Window).UnlockAll)
}

// FlushAll returns when all operations are complete at their targets.
func (w *Win) FlushAll() error {
	return w.waitAllOps("FlushAll", (*window.Window).CheckFlushAll, (*window.Window).AllRemoteComplete, (*window.Window).TakeErrors)
}

// FlushLocalAll returns when the buffers of all operations are the program's again.
func (w *Win) FlushLocalAll() error {
	return w.waitAllOps("FlushLocalAll", (*window.Window).CheckFlushAll, (*window.Window).AllLocalComplete, (*window.Window).TakeErrors)
}

func (w *Win) waitAllOps(name string, check func(*window.Window) error, complete func(*window.Window) bool, end func(*window.Window) error) error {
	return w.call(name, func(e *window.Window) error {
		if err := check(e); err != nil {
			return err
		}
		w.c.k.waitUntil(func() bool { return complete(e) })
		return end(e)
	})
}

// Sync makes what others have done to this rank's window visible to it, and what it
// has stored there to others. Memory here is one, so that a look at what has come is
// all that it takes.
func (w *Win) Sync() error {
	return w.call("Sync", func(e *window.Window) error {
		if err := e.CheckFlushAll(); err != nil {
			return fmt.Errorf("Sync: %w", err)
		}
		w.c.k.pollOnce(func() bool { return false })
		return nil
	})
}
