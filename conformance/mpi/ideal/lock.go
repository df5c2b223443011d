package ideal

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// guard is the lock of a target. Claims are granted in the order in which they came.
type guard struct {
	granted []*claim
	waiting []*claim
}

// claim is a lock that a rank has, or wants.
type claim struct {
	kind    mpi.LockKind
	granted bool
}

func (g *guard) ask(c *claim) {
	g.waiting = append(g.waiting, c)
}

// grant gives the lock to those whose turn it is.
func (g *guard) grant(fl *Defects) {
	for len(g.waiting) > 0 {
		next := g.waiting[0]
		for _, c := range g.granted {
			shared := c.kind == mpi.Shared && next.kind == mpi.Shared
			mixed := c.kind != next.kind
			if !(shared && !fl.SharedExcludes || fl.LocksAlike || fl.ExclusiveLetsShared && mixed) {
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

func (w *win) badTarget(target int) error {
	if (target < 0 || target >= w.c.Size()) && !w.c.p.w.fl.RanksUnchecked {
		return mpi.ErrRank
	}
	return nil
}

func (w *win) Lock(kind mpi.LockKind, target int, _ mpi.Assert) error {
	if err := w.begin(w.held[target] != nil || w.every); err != nil {
		return w.fail("Lock", err)
	}
	if target == mpi.ProcNull {
		return nil
	}
	if err := w.badTarget(target); err != nil || target < 0 || target >= w.c.Size() {
		return w.fail("Lock", err)
	}
	c := w.claim(kind, target)
	// A lock need not be there when Lock returns, but for that of one's own memory.
	if target == w.c.rank || w.c.p.w.rng.IntN(2) == 0 {
		w.c.p.park("a lock", func() bool { return c.granted })
	}
	return nil
}

func (w *win) claim(kind mpi.LockKind, target int) *claim {
	c := &claim{kind: kind}
	w.held[target] = c
	w.all.locks[target].ask(c)
	w.all.locks[target].grant(w.c.p.w.fl)
	return c
}

func (w *win) Unlock(target int) error {
	if err := w.begin(target != mpi.ProcNull && w.held[target] == nil || w.every); err != nil {
		return w.fail("Unlock", err)
	}
	if target != mpi.ProcNull && w.held[target] != nil {
		w.release(target)
	}
	return nil
}

func (w *win) release(target int) {
	c := w.held[target]
	w.c.p.park("a lock", func() bool { return c.granted })
	if !w.c.p.w.fl.UnlockEarly {
		w.settle("Unlock", func(t int) bool { return t == target })
	}
	w.all.locks[target].release(c)
	w.all.locks[target].grant(w.c.p.w.fl)
	delete(w.held, target)
}

func (w *win) LockAll(mpi.Assert) error {
	if err := w.begin(len(w.held) > 0); err != nil {
		return w.fail("LockAll", err)
	}
	w.every = true
	for t := range w.c.Size() {
		if c := w.claim(mpi.Shared, t); t == w.c.rank {
			w.c.p.park("a lock", func() bool { return c.granted })
		}
	}
	return nil
}

func (w *win) UnlockAll() error {
	if err := w.begin(!w.every); err != nil {
		return w.fail("UnlockAll", err)
	}
	for t := range w.c.Size() {
		if w.held[t] != nil {
			w.release(t)
		}
	}
	w.every = false
	return nil
}

func (w *win) Flush(target int) error {
	if err := w.begin(w.held[target] == nil); err != nil {
		return w.fail("Flush", err)
	}
	if !w.c.p.w.fl.FlushEarly {
		w.settle("Flush", func(t int) bool { return t == target })
	}
	return nil
}

func (w *win) FlushAll() error {
	if err := w.begin(len(w.held) == 0); err != nil {
		return w.fail("FlushAll", err)
	}
	fl := w.c.p.w.fl
	if !fl.FlushEarly {
		w.settle("FlushAll", func(t int) bool { return t == 0 || !fl.FlushAllMisses })
	}
	return nil
}

// local gives the program its buffers back, of the operations on some targets.
func (w *win) local(of func(int) bool) {
	if w.c.p.w.fl.FlushLocalEarly {
		return
	}
	for _, o := range w.ops {
		if of(o.target) && !o.brings() {
			o.keep()
		}
	}
	w.c.p.park("results", func() bool {
		return !slices.ContainsFunc(w.ops, func(o *op) bool { return !o.done && o.brings() && of(o.target) })
	})
}

func (w *win) FlushLocal(target int) error {
	if err := w.begin(w.held[target] == nil); err != nil {
		return w.fail("FlushLocal", err)
	}
	w.local(func(t int) bool { return t == target })
	return nil
}

func (w *win) FlushLocalAll() error {
	if err := w.begin(len(w.held) == 0); err != nil {
		return w.fail("FlushLocalAll", err)
	}
	w.local(func(t int) bool { return t == 0 || !w.c.p.w.fl.FlushAllMisses })
	return nil
}
