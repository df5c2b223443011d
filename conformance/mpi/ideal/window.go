package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// window is the state that the ranks of a window share.
type window struct {
	mem            [][]byte
	locks          []targetLock
	fenceCounts    []int
	postCounts     [][]int  // count by target and origin
	completeCounts [][]int  // count of completed epochs by target and origin
	accessGroups   [][]int  // the targets of an origin's Start, by origin
	lastOrigins    [][]byte // the buffer of a rank's last put, by rank
}

// win is a window of one rank.
type win struct {
	c             *comm
	shared        *window
	freed         bool
	fenced        bool        // between fences
	fenceUsed     bool        // an operation was started since the last fence
	startCounts   map[int]int // count of Starts by target
	accessGroup   []int       // the targets of Start; nil if there is no such epoch
	exposureGroup []int       // the origins of Post; nil if there is no such epoch
	heldLocks     map[int]*lockRequest
	lockedAll     bool // the locks are of LockAll
	ops           []*op
}

// WinCreate is MPI_Win_create. The defect WinCopies uses a copy of buf.
func (c *comm) WinCreate(buf []byte) (cases.Win, error) {
	if c.Defects.WinCopies {
		buf = slices.Clone(buf)
	}
	return c.newWindow(buf)
}

func (c *comm) WinAllocate(size int) (cases.Win, error) { return c.newWindow(make([]byte, size)) }

// newWindow is collective: it creates a window of the buffers of all ranks. With the defect
// WindowsMixed, all windows of a communicator have the memory of the first.
func (c *comm) newWindow(buf []byte) (cases.Win, error) {
	if err := c.startCall(); err != nil {
		return nil, c.fail("WinCreate", err)
	}
	coll := c.joinAndWait("WinCreate", buf)
	n := c.Size()
	if coll.win == nil {
		coll.win = &window{locks: make([]targetLock, n), fenceCounts: make([]int, n), accessGroups: make([][]int, n), lastOrigins: make([][]byte, n)}
		for _, b := range coll.parts {
			coll.win.mem = append(coll.win.mem, b.([]byte))
			coll.win.postCounts = append(coll.win.postCounts, make([]int, n))
			coll.win.completeCounts = append(coll.win.completeCounts, make([]int, n))
		}
	}
	shared := coll.win
	if c.Defects.WindowsMixed {
		const firstWindow = -1 // no collective call has this number
		if c.group.collectives[firstWindow] == nil {
			c.group.collectives[firstWindow] = coll
		}
		mixed := *shared
		mixed.mem = c.group.collectives[firstWindow].win.mem
		shared = &mixed
	}
	return &win{c: c, shared: shared, startCounts: make(map[int]int), heldLocks: make(map[int]*lockRequest)}, nil
}

func (w *win) Memory() []byte { return w.shared.mem[w.c.rank] }

// Size returns the size of a rank's window. The defect SizesAlike returns that of this rank.
func (w *win) Size(rank int) int {
	if w.c.Defects.SizesAlike {
		rank = w.c.rank
	}
	return len(w.shared.mem[rank])
}

func (w *win) fail(call string, err error) error { return w.c.fail("Win."+call, err) }

// startCall begins a call. It fails if the window was freed, or if a defect fails all calls.
func (w *win) startCall() error {
	w.c.yieldSometimes()
	if w.freed && !w.c.Defects.FreedWindowIsUsable {
		return mpi.ErrWin
	}
	return w.c.stickyError
}

// callUnless runs do, the body of an MPI call on the window; name is for errors. If wrongEpoch is
// true, the call fails with ErrRMASync instead, unless a defect permits calls in the wrong epoch.
func (w *win) callUnless(wrongEpoch bool, name string, do func() error) error {
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

// usedFence reports whether the program has started operations since a fence, which only another
// fence can end.
func (w *win) usedFence() bool { return w.fenced && w.fenceUsed && !w.c.Defects.FencesOverlap }

// inAccessEpoch reports whether an access epoch is open that excludes others. A fence without
// operations does not.
func (w *win) inAccessEpoch() bool {
	return len(w.heldLocks) > 0 || w.lockedAll || w.accessGroup != nil || w.usedFence()
}

// Free is MPI_Win_free, which is collective. It fails with ErrRMASync in an epoch.
func (w *win) Free() error {
	inEpoch := w.inAccessEpoch() || w.exposureGroup != nil
	return w.callUnless(inEpoch, "Free", func() error {
		w.c.joinAndWait("Win.Free", nil)
		w.freed = true
		return nil
	})
}

// waitApplied waits for the operations on the selected targets. call names the waiting MPI call.
func (w *win) waitApplied(call string, selected func(target int) bool) {
	w.c.blockUntil("operations before "+call, func() bool {
		return !slices.ContainsFunc(w.ops, func(o *op) bool { return !o.done && selected(o.target) })
	})
	w.ops = slices.DeleteFunc(w.ops, func(o *op) bool { return o.done })
}

// anyTarget selects all targets.
func anyTarget(int) bool { return true }

// Fence ends an epoch, with a barrier unless NoPrecede is asserted, and begins another unless
// NoSucceed is. Operations of the new epoch wait until their target has called Fence as often.
func (w *win) Fence(a mpi.Assert) error {
	inOtherEpoch := len(w.heldLocks) > 0 || w.accessGroup != nil || w.exposureGroup != nil
	return w.callUnless(inOtherEpoch, "Fence", func() error {
		if !w.c.Defects.FenceEarly {
			w.waitApplied("Fence", anyTarget)
		}
		if a&mpi.NoPrecede == 0 && !w.c.Defects.FenceAlone {
			w.c.joinAndWait("Fence", nil)
		}
		w.shared.fenceCounts[w.c.rank]++
		w.fenced, w.fenceUsed = a&mpi.NoSucceed == 0, false
		return nil
	})
}

// Post begins an exposure epoch for the origins in group. It counts the posts for each origin: the
// operations after an origin's n-th Start wait for the n-th post. The defect PostForgotten does not
// count a post for an origin that is in an access epoch with other targets.
func (w *win) Post(group []int, _ mpi.Assert) error {
	inEpoch := w.exposureGroup != nil || w.usedFence()
	return w.callUnless(inEpoch, "Post", func() error {
		w.fenced = false
		w.exposureGroup = append([]int{}, group...) // not nil, even if group is
		for _, o := range group {
			targets := w.shared.accessGroups[o]
			if w.c.Defects.PostForgotten && targets != nil && !slices.Contains(targets, w.c.rank) {
				continue
			}
			w.shared.postCounts[w.c.rank][o]++
		}
		return nil
	})
}

// Start begins an access epoch for the targets in group.
func (w *win) Start(group []int, _ mpi.Assert) error {
	return w.callUnless(w.inAccessEpoch(), "Start", func() error {
		w.fenced = false
		w.accessGroup = append([]int{}, group...) // not nil, even if group is
		w.shared.accessGroups[w.c.rank] = w.accessGroup
		for _, t := range group {
			w.startCounts[t]++
		}
		if w.c.rng.IntN(2) == 0 { // Start may wait for the posts, or later calls may
			w.c.blockUntil("posts", func() bool {
				return !slices.ContainsFunc(group, func(t int) bool { return !w.posted(t, w.startCounts[t]) })
			})
		}
		return nil
	})
}

// posted reports whether a target has posted its window to this rank at least n times.
func (w *win) posted(target, n int) bool {
	return w.shared.postCounts[target][w.c.rank] >= n || w.c.Defects.StartIgnoresPost
}

// Complete ends the access epoch. It adds 1 to a count for each target; Wait at the target compares
// that count with the number of posts.
func (w *win) Complete() error {
	notStarted := w.accessGroup == nil
	return w.callUnless(notStarted, "Complete", func() error {
		if !w.c.Defects.CompleteEarly {
			w.waitApplied("Complete", anyTarget)
		}
		for _, t := range w.accessGroup {
			w.shared.completeCounts[t][w.c.rank]++
		}
		w.accessGroup, w.shared.accessGroups[w.c.rank] = nil, nil
		return nil
	})
}

// awaitsOrigin reports whether an origin of the exposure epoch has not called Complete yet. Defects
// ignore some origins.
func (w *win) awaitsOrigin() bool {
	for i, o := range w.exposureGroup {
		if w.shared.completeCounts[w.c.rank][o] < w.shared.postCounts[w.c.rank][o] {
			return !(w.c.Defects.WaitEarly || w.c.Defects.WaitsForFirst && i > 0)
		}
	}
	return false
}

// Wait is MPI_Win_wait. It fails with ErrRMASync without Post.
func (w *win) Wait() error {
	notPosted := w.exposureGroup == nil
	return w.callUnless(notPosted, "Wait", func() error {
		w.c.blockUntil("origins to complete", func() bool { return !w.awaitsOrigin() })
		w.exposureGroup = nil
		return nil
	})
}

// Test is MPI_Win_test. It fails with ErrRMASync without Post.
func (w *win) Test() (done bool, err error) {
	w.c.letOthersRun()
	notPosted := w.exposureGroup == nil
	err = w.callUnless(notPosted, "Test", func() error {
		if done = !w.awaitsOrigin(); done {
			w.exposureGroup = nil
		}
		return nil
	})
	return done, err
}

func (w *win) Sync() error {
	notLocked := len(w.heldLocks) == 0
	return w.callUnless(notLocked, "Sync", func() error { return nil })
}
