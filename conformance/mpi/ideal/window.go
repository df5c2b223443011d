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
	c      *comm
	all    *window
	freed  bool
	open   bool        // between fences
	starts map[int]int // count of Starts by target
	access []int       // of Start; nil if there is no such epoch
	expose []int       // of Post
	held   map[int]*claim
	every  bool // the locks are of LockAll
	ops    []*op
}

func (c *comm) WinCreate(buf []byte) (cases.Win, error) {
	if c.p.w.defects.WinCopies {
		buf = slices.Clone(buf)
	}
	return c.window(buf)
}

func (c *comm) WinAllocate(size int) (cases.Win, error) { return c.window(make([]byte, size)) }

func (c *comm) window(buf []byte) (cases.Win, error) {
	if err := c.usable(); err != nil {
		return nil, c.fail("WinCreate", err)
	}
	m := c.meet(buf)
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
		if c.g.meets[-1] == nil {
			c.g.meets[-1] = m
		}
		all = &window{mem: c.g.meets[-1].win.mem, locks: all.locks, fences: all.fences, posts: all.posts, dones: all.dones}
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
	return w.c.p.shut
}

// misuse returns the error of a call that does not fit the epoch.
func (w *win) misuse(is bool) error {
	if is && !w.c.p.w.defects.EpochsUnchecked {
		return mpi.ErrRMASync
	}
	return nil
}

// begin begins a call that is invalid in some states.
func (w *win) begin(wrong bool) error {
	if err := w.usable(); err != nil {
		return err
	}
	return w.misuse(wrong)
}

func (w *win) Free() error {
	if err := w.begin(len(w.held) > 0); err != nil {
		return w.fail("Free", err)
	}
	m := w.c.meet(nil)
	w.c.p.blockUntil("the others at Win.Free", m.complete)
	w.freed = true
	return nil
}

// settle waits until the operations on a target, or on all, have been applied.
func (w *win) settle(what string, of func(target int) bool) {
	w.c.p.blockUntil("operations before "+what, func() bool {
		return !slices.ContainsFunc(w.ops, func(o *op) bool { return !o.done && of(o.target) })
	})
	w.ops = slices.DeleteFunc(w.ops, func(o *op) bool { return o.done })
}

func everyone(int) bool { return true }

func (w *win) Fence(a mpi.Assert) error {
	if err := w.begin(len(w.held) > 0 || w.access != nil); err != nil {
		return w.fail("Fence", err)
	}
	defects := w.c.p.w.defects
	if !defects.FenceEarly {
		w.settle("Fence", everyone)
	}
	if a&mpi.NoPrecede == 0 && !defects.FenceAlone {
		m := w.c.meet(nil)
		w.c.p.blockUntil("the others at Fence", m.complete)
	}
	w.all.fences[w.c.rank]++
	w.open = a&mpi.NoSucceed == 0
	return nil
}

func (w *win) Post(group []int, _ mpi.Assert) error {
	if err := w.begin(w.expose != nil); err != nil {
		return w.fail("Post", err)
	}
	w.expose = slices.Clone(group)
	if w.expose == nil {
		w.expose = []int{}
	}
	for _, o := range group {
		w.all.posts[w.c.rank][o]++
	}
	return nil
}

func (w *win) Start(group []int, _ mpi.Assert) error {
	if err := w.begin(w.access != nil); err != nil {
		return w.fail("Start", err)
	}
	w.access = slices.Clone(group)
	if w.access == nil {
		w.access = []int{}
	}
	for _, t := range group {
		w.starts[t]++
	}
	if w.c.p.w.rng.IntN(2) == 0 { // Start may wait for the posts, or later calls may
		w.c.p.blockUntil("posts", func() bool {
			return !slices.ContainsFunc(group, func(t int) bool { return !w.posted(t, w.starts[t]) })
		})
	}
	return nil
}

// posted reports whether a target has posted its window to this rank for the n-th time.
func (w *win) posted(target, n int) bool {
	return w.all.posts[target][w.c.rank] >= n || w.c.p.w.defects.StartIgnoresPost
}

func (w *win) Complete() error {
	if err := w.begin(w.access == nil); err != nil {
		return w.fail("Complete", err)
	}
	if !w.c.p.w.defects.CompleteEarly {
		w.settle("Complete", everyone)
	}
	for _, t := range w.access {
		w.all.dones[t][w.c.rank]++
	}
	w.access = nil
	return nil
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
	if err := w.begin(w.expose == nil); err != nil {
		return w.fail("Wait", err)
	}
	w.c.p.blockUntil("origins to complete", func() bool { return !w.exposed() })
	w.expose = nil
	return nil
}

func (w *win) Test() (bool, error) {
	w.c.p.letOthersRun()
	if err := w.begin(w.expose == nil); err != nil {
		return false, w.fail("Test", err)
	}
	if w.exposed() {
		return false, nil
	}
	w.expose = nil
	return true, nil
}

func (w *win) Sync() error {
	if err := w.begin(len(w.held) == 0); err != nil {
		return w.fail("Sync", err)
	}
	return nil
}
