package ideal

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// targetLock is the lock of a target. It grants requests in their order.
type targetLock struct {
	granted []*lockRequest
	waiting []*lockRequest
}

// lockRequest is a lock that a rank holds or waits for.
type lockRequest struct {
	kind    mpi.LockKind
	granted bool
}

// grant grants waiting requests in their order, and stops at the first that may not share the lock
// with those granted. Only shared locks may share; defects change that.
func (g *targetLock) grant(defects *Defects) {
	for len(g.waiting) > 0 {
		next := g.waiting[0]
		for _, held := range g.granted {
			bothShared := held.kind == mpi.Shared && next.kind == mpi.Shared
			mixed := held.kind != next.kind
			mayShare := bothShared && !defects.SharedExcludes || defects.LocksAlike || defects.ExclusiveLetsShared && mixed
			if !mayShare {
				return
			}
		}
		next.granted = true
		g.granted = append(g.granted, next)
		g.waiting = g.waiting[1:]
	}
}

// release removes a granted request.
func (g *targetLock) release(lock *lockRequest) {
	g.granted = slices.DeleteFunc(g.granted, func(other *lockRequest) bool { return other == lock })
}

// Lock requests the lock of a target. It fails with ErrRMASync if this rank has locked it already,
// or is in an access epoch that Lock did not begin.
func (w *win) Lock(kind mpi.LockKind, target int, _ mpi.Assert) error {
	alreadyLocked := w.heldLocks[target] != nil
	begunByLock := len(w.heldLocks) > 0 && !w.lockedAll
	return w.callUnless(alreadyLocked || w.inAccessEpoch() && !begunByLock, "Lock", func() error {
		if target == mpi.ProcNull {
			return nil
		}
		if !w.c.hasRank(target) {
			return unless(w.c.Defects.RanksUnchecked, mpi.ErrRank)
		}
		w.fenced = false
		lock := w.requestLock(kind, target)
		// Lock may return before it is granted, except for the rank's own memory.
		if target == w.c.rank || w.c.rng.IntN(2) == 0 {
			w.waitGranted(lock)
		}
		return nil
	})
}

// requestLock requests the lock of a target, which may be granted at once.
func (w *win) requestLock(kind mpi.LockKind, target int) *lockRequest {
	lock := &lockRequest{kind: kind}
	w.heldLocks[target] = lock
	w.shared.locks[target].waiting = append(w.shared.locks[target].waiting, lock)
	w.shared.locks[target].grant(&w.c.Defects)
	return lock
}

// waitGranted waits until a lock is granted.
func (w *win) waitGranted(lock *lockRequest) {
	w.c.blockUntil("a lock", func() bool { return lock.granted })
}

// Unlock is MPI_Win_unlock. It fails with ErrRMASync if Lock did not lock the target.
func (w *win) Unlock(target int) error {
	notLocked := target != mpi.ProcNull && w.heldLocks[target] == nil
	return w.callUnless(notLocked || w.lockedAll, "Unlock", func() error {
		// A defect can permit the call without a lock.
		if target != mpi.ProcNull && w.heldLocks[target] != nil {
			w.release(target)
		}
		return nil
	})
}

// release completes the operations on a target, releases its lock, and grants the next requests.
func (w *win) release(target int) {
	lock := w.heldLocks[target]
	w.waitGranted(lock)
	if !w.c.Defects.UnlockEarly {
		w.waitApplied("Unlock", onlyTarget(target))
	}
	w.shared.locks[target].release(lock)
	w.shared.locks[target].grant(&w.c.Defects)
	delete(w.heldLocks, target)
}

// LockAll requests a shared lock of every target, and waits only for that of the rank's own memory.
func (w *win) LockAll(mpi.Assert) error {
	return w.callUnless(w.inAccessEpoch(), "LockAll", func() error {
		w.lockedAll, w.fenced = true, false
		for t := range w.c.Size() {
			if lock := w.requestLock(mpi.Shared, t); t == w.c.rank {
				w.waitGranted(lock)
			}
		}
		return nil
	})
}

// UnlockAll is MPI_Win_unlock_all. It fails with ErrRMASync without LockAll.
func (w *win) UnlockAll() error {
	notLocked := !w.lockedAll
	return w.callUnless(notLocked, "UnlockAll", func() error {
		for t := range w.c.Size() {
			if w.heldLocks[t] != nil {
				w.release(t)
			}
		}
		w.lockedAll = false
		return nil
	})
}

// onlyTarget returns a function that selects one target.
func onlyTarget(target int) func(int) bool { return func(t int) bool { return t == target } }

// flushedByAll selects the targets of FlushAll and FlushLocalAll: all, or rank 0 with a defect.
func (w *win) flushedByAll(target int) bool { return target == 0 || !w.c.Defects.FlushAllMisses }

func (w *win) Flush(target int) error {
	return w.flush("Flush", w.heldLocks[target] == nil, onlyTarget(target))
}
func (w *win) FlushAll() error { return w.flush("FlushAll", len(w.heldLocks) == 0, w.flushedByAll) }

// flush completes operations on the selected targets. It fails with ErrRMASync if unlocked is true.
func (w *win) flush(name string, unlocked bool, selected func(target int) bool) error {
	return w.callUnless(unlocked, name, func() error {
		if !w.c.Defects.FlushEarly {
			w.waitApplied(name, selected)
		}
		return nil
	})
}

func (w *win) FlushLocal(target int) error {
	return w.flushLocal("FlushLocal", w.heldLocks[target] == nil, onlyTarget(target))
}

func (w *win) FlushLocalAll() error {
	return w.flushLocal("FlushLocalAll", len(w.heldLocks) == 0, w.flushedByAll)
}

// flushLocal makes the origin buffers of operations on the selected targets reusable: it waits for
// results, and copies other buffers. It fails with ErrRMASync if unlocked is true.
func (w *win) flushLocal(name string, unlocked bool, selected func(target int) bool) error {
	return w.callUnless(unlocked, name, func() error {
		if w.c.Defects.FlushLocalEarly {
			return nil
		}
		for _, o := range w.ops {
			if selected(o.target) && !o.hasResult() {
				o.copyOrigin()
			}
		}
		w.c.blockUntil("results", func() bool {
			return !slices.ContainsFunc(w.ops, func(o *op) bool { return !o.done && o.hasResult() && selected(o.target) })
		})
		return nil
	})
}
