package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// window is the state that the ranks of a window share.
type window struct {
	mem    [][]byte
	locks  []targetLock
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
	held      map[int]*lockRequest
	lockedAll bool // the locks are of LockAll
	ops       []*op
}

func (c *comm) WinCreate(buf []byte) (cases.Win, error) {
	if c.Defects.WinCopies {
		buf = slices.Clone(buf)
	}
	return c.window(buf)
}

func (c *comm) WinAllocate(size int) (cases.Win, error) { return c.window(make([]byte, size)) }

// window is collective: it creates a window of the buffers of all ranks.
func (c *comm) window(buf []byte) (cases.Win, error) {
	if err := c.startCall(); err != nil {
		return nil, c.fail("WinCreate", err)
	}
	m := c.joinAndWait("WinCreate", buf)
	n := c.Size()
	if m.win == nil {
		m.win = &window{locks: make([]targetLock, n), fences: make([]int, n)}
		for _, b := range m.in {
			m.win.mem = append(m.win.mem, b.([]byte))
			m.win.posts = append(m.win.posts, make([]int, n))
			m.win.dones = append(m.win.dones, make([]int, n))
		}
	}
	all := m.win
	if c.Defects.WindowsMixed {
		if c.g.collectives[-1] == nil {
			c.g.collectives[-1] = m
		}
		all = &window{mem: c.g.collectives[-1].win.mem, locks: all.locks, fences: all.fences, posts: all.posts, dones: all.dones}
	}
	return &win{c: c, all: all, starts: make(map[int]int), held: make(map[int]*lockRequest)}, nil
}

func (w *win) Memory() []byte { return w.all.mem[w.c.rank] }

func (w *win) Size(rank int) int {
	if w.c.Defects.SizesAlike {
		rank = w.c.rank
	}
	return len(w.all.mem[rank])
}

func (w *win) fail(call string, err error) error { return w.c.fail("Win."+call, err) }

// startCall begins a call on the window, and fails if it was freed.
func (w *win) startCall() error {
	w.c.enter()
	if w.freed && !w.c.Defects.FreedWindowIsUsable {
		return mpi.ErrWin
	}
	return w.c.failure
}

// call runs a call on the window. It is an error if the call does not fit the epoch.
func (w *win) call(name string, wrongEpoch bool, do func() error) error {
	err := w.startCall()
	switch {
	case err != nil:
	case wrongEpoch && !w.c.Defects.EpochsUnchecked:
		err = mpi.ErrRMASync
	default:
		err = do()
	}
	return w.fail(name, err)
}

func (w *win) Free() error {
	return w.call("Free", len(w.held) > 0, func() error {
		w.c.joinAndWait("Win.Free", nil)
		w.freed = true
		return nil
	})
}

// waitApplied waits until the operations on the selected targets have been applied.
func (w *win) waitApplied(before string, selected func(target int) bool) {
	w.c.blockUntil("operations before "+before, func() bool {
		return !slices.ContainsFunc(w.ops, func(o *op) bool { return !o.done && selected(o.target) })
	})
	w.ops = slices.DeleteFunc(w.ops, func(o *op) bool { return o.done })
}

func anyTarget(int) bool { return true }

func (w *win) Fence(a mpi.Assert) error {
	return w.call("Fence", len(w.held) > 0 || w.access != nil, func() error {
		if !w.c.Defects.FenceEarly {
			w.waitApplied("Fence", anyTarget)
		}
		if a&mpi.NoPrecede == 0 && !w.c.Defects.FenceAlone {
			w.c.joinAndWait("Fence", nil)
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
		if w.c.rng.IntN(2) == 0 { // Start may wait for the posts, or later calls may
			w.c.blockUntil("posts", func() bool {
				return !slices.ContainsFunc(group, func(t int) bool { return !w.posted(t, w.starts[t]) })
			})
		}
		return nil
	})
}

// posted reports whether a target has posted its window to this rank for the n-th time.
func (w *win) posted(target, n int) bool {
	return w.all.posts[target][w.c.rank] >= n || w.c.Defects.StartIgnoresPost
}

func (w *win) Complete() error {
	return w.call("Complete", w.access == nil, func() error {
		if !w.c.Defects.CompleteEarly {
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
	for i, o := range w.expose {
		if w.all.dones[w.c.rank][o] < w.all.posts[w.c.rank][o] {
			return !(w.c.Defects.WaitEarly || w.c.Defects.WaitsForFirst && i > 0)
		}
	}
	return false
}

func (w *win) Wait() error {
	return w.call("Wait", w.expose == nil, func() error {
		w.c.blockUntil("origins to complete", func() bool { return !w.exposed() })
		w.expose = nil
		return nil
	})
}

func (w *win) Test() (done bool, err error) {
	w.c.letOthersRun()
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
