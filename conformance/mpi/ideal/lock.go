package ideal

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// guard is the lock of a target. It grants claims in their order.
type guard struct {
	granted []*claim
	waiting []*claim
}

// claim is a lock that a rank holds or waits for.
type claim struct {
	kind    mpi.LockKind
	granted bool
}

// grant grants the next claims that are compatible.
func (g *guard) grant(defects *Defects) {
	for len(g.waiting) > 0 {
		next := g.waiting[0]
		for _, c := range g.granted {
			shared := c.kind == mpi.Shared && next.kind == mpi.Shared
			mixed := c.kind != next.kind
			if !(shared && !defects.SharedExcludes || defects.LocksAlike || defects.ExclusiveLetsShared && mixed) {
				return
			}
		}
		next.granted = true
		g.granted = append(g.granted, next)
		g.waiting = g.waiting[1:]
	}
}

func (g *guard) release(c *claim) {
	g.granted = slices.DeleteFunc(g.granted, func(o *claim) bool { return o == c })
}

// badTarget returns the error of a target that is no rank.
func (w *win) badTarget(target int) error {
	if (target < 0 || target >= w.c.Size()) && !w.c.p.w.defects.RanksUnchecked {
		return mpi.ErrRank
	}
	return nil
}

func (w *win) Lock(kind mpi.LockKind, target int, _ mpi.Assert) error {
	return w.call("Lock", w.held[target] != nil || w.lockedAll, func() error {
		if target == mpi.ProcNull {
			return nil
		}
		if err := w.badTarget(target); err != nil || target < 0 || target >= w.c.Size() {
			return err
		}
		c := w.requestLock(kind, target)
		// Lock may return before it is granted, except for the rank's own memory.
		if target == w.c.rank || w.c.p.w.rng.IntN(2) == 0 {
			w.waitGranted(c)
		}
		return nil
	})
}

// requestLock requests the lock of a target, which may be granted at once.
func (w *win) requestLock(kind mpi.LockKind, target int) *claim {
	c := &claim{kind: kind}
	w.held[target] = c
	w.all.locks[target].waiting = append(w.all.locks[target].waiting, c)
	w.all.locks[target].grant(w.c.p.w.defects)
	return c
}

// waitGranted waits until a lock is granted.
func (w *win) waitGranted(c *claim) {
	w.c.p.blockUntil("a lock", func() bool { return c.granted })
}

func (w *win) Unlock(target int) error {
	return w.call("Unlock", target != mpi.ProcNull && w.held[target] == nil || w.lockedAll, func() error {
		if target != mpi.ProcNull && w.held[target] != nil {
			w.release(target)
		}
		return nil
	})
}

// release completes the operations on a target, and gives its lock back.
func (w *win) release(target int) {
	c := w.held[target]
	w.waitGranted(c)
	if !w.c.p.w.defects.UnlockEarly {
		w.waitApplied("Unlock", func(t int) bool { return t == target })
	}
	w.all.locks[target].release(c)
	w.all.locks[target].grant(w.c.p.w.defects)
	delete(w.held, target)
}

func (w *win) LockAll(mpi.Assert) error {
	return w.call("LockAll", len(w.held) > 0, func() error {
		w.lockedAll = true
		for t := range w.c.Size() {
			if c := w.requestLock(mpi.Shared, t); t == w.c.rank {
				w.waitGranted(c)
			}
		}
		return nil
	})
}

func (w *win) UnlockAll() error {
	return w.call("UnlockAll", !w.lockedAll, func() error {
		for t := range w.c.Size() {
			if w.held[t] != nil {
				w.release(t)
			}
		}
		w.lockedAll = false
		return nil
	})
}

func (w *win) Flush(target int) error {
	return w.flush("Flush", w.held[target] == nil, func(t int) bool { return t == target })
}

func (w *win) FlushAll() error {
	return w.flush("FlushAll", len(w.held) == 0, func(t int) bool { return t == 0 || !w.c.p.w.defects.FlushAllMisses })
}

// flush completes the operations on the selected targets.
func (w *win) flush(name string, unlocked bool, selected func(target int) bool) error {
	return w.call(name, unlocked, func() error {
		if !w.c.p.w.defects.FlushEarly {
			w.waitApplied(name, selected)
		}
		return nil
	})
}

func (w *win) FlushLocal(target int) error {
	return w.flushLocal("FlushLocal", w.held[target] == nil, func(t int) bool { return t == target })
}

func (w *win) FlushLocalAll() error {
	return w.flushLocal("FlushLocalAll", len(w.held) == 0, func(t int) bool { return t == 0 || !w.c.p.w.defects.FlushAllMisses })
}

// flushLocal completes the operations on the selected targets at the origin: their buffers
// can be reused.
func (w *win) flushLocal(name string, unlocked bool, selected func(target int) bool) error {
	return w.call(name, unlocked, func() error {
		if w.c.p.w.defects.FlushLocalEarly {
			return nil
		}
		for _, o := range w.ops {
			if selected(o.target) && !o.hasResult() {
				o.keep()
			}
		}
		w.c.p.blockUntil("results", func() bool {
			return !slices.ContainsFunc(w.ops, func(o *op) bool { return !o.done && o.hasResult() && selected(o.target) })
		})
		return nil
	})
}
