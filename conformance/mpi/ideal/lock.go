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

func (g *guard) ask(c *claim) {
	g.waiting = append(g.waiting, c)
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

func (w *win) badTarget(target int) error {
	if (target < 0 || target >= w.c.Size()) && !w.c.p.w.defects.RanksUnchecked {
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
	// Lock may return before it is granted, except for the rank's own memory.
	if target == w.c.rank || w.c.p.w.rng.IntN(2) == 0 {
		w.c.p.blockUntil("a lock", func() bool { return c.granted })
	}
	return nil
}

func (w *win) claim(kind mpi.LockKind, target int) *claim {
	c := &claim{kind: kind}
	w.held[target] = c
	w.all.locks[target].ask(c)
	w.all.locks[target].grant(w.c.p.w.defects)
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
	w.c.p.blockUntil("a lock", func() bool { return c.granted })
	if !w.c.p.w.defects.UnlockEarly {
		w.settle("Unlock", func(t int) bool { return t == target })
	}
	w.all.locks[target].release(c)
	w.all.locks[target].grant(w.c.p.w.defects)
	delete(w.held, target)
}

func (w *win) LockAll(mpi.Assert) error {
	if err := w.begin(len(w.held) > 0); err != nil {
		return w.fail("LockAll", err)
	}
	w.every = true
	for t := range w.c.Size() {
		if c := w.claim(mpi.Shared, t); t == w.c.rank {
			w.c.p.blockUntil("a lock", func() bool { return c.granted })
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
	if !w.c.p.w.defects.FlushEarly {
		w.settle("Flush", func(t int) bool { return t == target })
	}
	return nil
}

func (w *win) FlushAll() error {
	if err := w.begin(len(w.held) == 0); err != nil {
		return w.fail("FlushAll", err)
	}
	defects := w.c.p.w.defects
	if !defects.FlushEarly {
		w.settle("FlushAll", func(t int) bool { return t == 0 || !defects.FlushAllMisses })
	}
	return nil
}

// local completes operations on some targets at the origin: their buffers can be reused.
func (w *win) local(of func(int) bool) {
	if w.c.p.w.defects.FlushLocalEarly {
		return
	}
	for _, o := range w.ops {
		if of(o.target) && !o.hasResult() {
			o.keep()
		}
	}
	w.c.p.blockUntil("results", func() bool {
		return !slices.ContainsFunc(w.ops, func(o *op) bool { return !o.done && o.hasResult() && of(o.target) })
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
	w.local(func(t int) bool { return t == 0 || !w.c.p.w.defects.FlushAllMisses })
	return nil
}
