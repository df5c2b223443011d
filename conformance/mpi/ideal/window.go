package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// window is the state that the ranks of a window share.
type window struct {
	mem    [][]byte
	locks  []guard
	fences []int
	posts  [][]int // count by target and origin
	dones  [][]int // count of completed epochs, likewise
}

// win is a window of one rank.
type win struct {
	c         *comm
	all       *window
	freed     bool
	open      bool        // between fences
	starts    map[int]int // count of Starts by target
	access    []int       // of Start; nil if there is no such epoch
	expose    []int       // of Post
	held      map[int]*claim
	lockedAll bool // the locks are of LockAll
	ops       []*op
}

func (c *comm) WinCreate(buf []byte) (cases.Win, error) {
	if c.p.w.defects.WinCopies {
		buf = slices.Clone(buf)
	}
	return c.window(buf)
}

func (c *comm) WinAllocate(size int) (cases.Win, error) { return c.window(make([]byte, size)) }

// window is collective: it creates a window of the buffers of all ranks.
func (c *comm) window(buf []byte) (cases.Win, error) {
	if err := c.usable(); err != nil {
		return nil, c.fail("WinCreate", err)
	}
	m := c.join(buf)
	c.p.blockUntil("the others at WinCreate", m.complete)
	defects, n := c.p.w.defects, c.Size()
	if m.win == nil {
		m.win = &window{locks: make([]guard, n), fences: make([]int, n)}
		for _, b := range m.in {
			m.win.mem = append(m.win.mem, b.([]byte))
			m.win.posts = append(m.win.posts, make([]int, n))
			m.win.dones = append(m.win.dones, make([]int, n))
		}
	}
	all := m.win
	if defects.WindowsMixed {
		if c.g.collectives[-1] == nil {
			c.g.collectives[-1] = m
		}
		all = &window{mem: c.g.collectives[-1].win.mem, locks: all.locks, fences: all.fences, posts: all.posts, dones: all.dones}
	}
	return &win{c: c, all: all, starts: make(map[int]int), held: make(map[int]*claim)}, nil
}

func (w *win) Memory() []byte { return w.all.mem[w.c.rank] }

func (w *win) Size(rank int) int {
	if w.c.p.w.defects.SizesAlike {
		rank = w.c.rank
	}
	return len(w.all.mem[rank])
}

func (w *win) fail(call string, err error) error { return w.c.fail("Win."+call, err) }

// usable begins a call on the window, and fails if it was freed.
func (w *win) usable() error {
	w.c.p.enter()
	if w.freed && !w.c.p.w.defects.FreedWindowIsUsable {
		return mpi.ErrWin
	}
	return w.c.p.failure
}

// call runs a call on the window. It is an error if the call does not fit the epoch.
func (w *win) call(name string, wrongEpoch bool, do func() error) error {
	err := w.usable()
	switch {
	case err != nil:
	case wrongEpoch && !w.c.p.w.defects.EpochsUnchecked:
		err = mpi.ErrRMASync
	default:
		err = do()
	}
	return w.fail(name, err)
}

func (w *win) Free() error {
	return w.call("Free", len(w.held) > 0, func() error {
		m := w.c.join(nil)
		w.c.p.blockUntil("the others at Win.Free", m.complete)
		w.freed = true
		return nil
	})
}

// waitApplied waits until the operations on the selected targets have been applied.
func (w *win) waitApplied(before string, selected func(target int) bool) {
	w.c.p.blockUntil("operations before "+before, func() bool {
		return !slices.ContainsFunc(w.ops, func(o *op) bool { return !o.done && selected(o.target) })
	})
	w.ops = slices.DeleteFunc(w.ops, func(o *op) bool { return o.done })
}

func anyTarget(int) bool { return true }

func (w *win) Fence(a mpi.Assert) error {
	return w.call("Fence", len(w.held) > 0 || w.access != nil, func() error {
		defects := w.c.p.w.defects
		if !defects.FenceEarly {
			w.waitApplied("Fence", anyTarget)
		}
		if a&mpi.NoPrecede == 0 && !defects.FenceAlone {
			m := w.c.join(nil)
			w.c.p.blockUntil("the others at Fence", m.complete)
		}
		w.all.fences[w.c.rank]++
		w.open = a&mpi.NoSucceed == 0
		return nil
	})
}

func (w *win) Post(group []int, _ mpi.Assert) error {
	return w.call("Post", w.expose != nil, func() error {
		w.expose = append([]int{}, group...)
		for _, o := range group {
			w.all.posts[w.c.rank][o]++
		}
		return nil
	})
}

func (w *win) Start(group []int, _ mpi.Assert) error {
	return w.call("Start", w.access != nil, func() error {
		w.access = append([]int{}, group...)
		for _, t := range group {
			w.starts[t]++
		}
		if w.c.p.w.rng.IntN(2) == 0 { // Start may wait for the posts, or later calls may
			w.c.p.blockUntil("posts", func() bool {
				return !slices.ContainsFunc(group, func(t int) bool { return !w.posted(t, w.starts[t]) })
			})
		}
		return nil
	})
}

// posted reports whether a target has posted its window to this rank for the n-th time.
func (w *win) posted(target, n int) bool {
	return w.all.posts[target][w.c.rank] >= n || w.c.p.w.defects.StartIgnoresPost
}

func (w *win) Complete() error {
	return w.call("Complete", w.access == nil, func() error {
		if !w.c.p.w.defects.CompleteEarly {
			w.waitApplied("Complete", anyTarget)
		}
		for _, t := range w.access {
			w.all.dones[t][w.c.rank]++
		}
		w.access = nil
		return nil
	})
}

// exposed reports whether an origin of the exposure epoch has not completed.
func (w *win) exposed() bool {
	defects := w.c.p.w.defects
	for i, o := range w.expose {
		if w.all.dones[w.c.rank][o] < w.all.posts[w.c.rank][o] {
			return !(defects.WaitEarly || defects.WaitsForFirst && i > 0)
		}
	}
	return false
}

func (w *win) Wait() error {
	return w.call("Wait", w.expose == nil, func() error {
		w.c.p.blockUntil("origins to complete", func() bool { return !w.exposed() })
		w.expose = nil
		return nil
	})
}

func (w *win) Test() (done bool, err error) {
	w.c.p.letOthersRun()
	err = w.call("Test", w.expose == nil, func() error {
		if done = !w.exposed(); done {
			w.expose = nil
		}
		return nil
	})
	return done, err
}

func (w *win) Sync() error {
	return w.call("Sync", len(w.held) == 0, func() error { return nil })
}
