package misuse

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/explore"
)

// sharedWindow is what all ranks of a window share. Counts are by origin and target, both ranks of the
// window.
type sharedWindow struct {
	posts, starts, completes, waits map[[2]int]int
	locks                           []windowLock
	isOpen                          bool // an epoch is open at the end
}

// windowLock is a lock that a rank holds on the memory of a target.
type windowLock struct {
	rank, target int // of the window
	exclusive    bool
	unchecked    bool // taken with NoCheck
	place        explore.Place
}

// Window is a window, as one rank sees it.
type Window struct {
	*sharedWindow
	comm  *Comm
	me    int
	place explore.Place
	freed bool

	fence, start, post, lockAll epoch
	used                        bool // operations since the last fence
	usedAt                      explore.Place
	locks                       map[int]*windowLock // that this rank holds or waits for
}

// epoch is an open epoch; it is closed if its place has no line.
type epoch struct {
	place explore.Place
	group []int
}

func (e *epoch) isOpen() bool { return e.place.Line > 0 }

// NewWindow records a window. comm is the communicator of the window itself.
func (r *Rank) NewWindow(comm *Comm, place explore.Place) *Window {
	shared := r.c.windows[comm.id]
	if shared == nil {
		shared = &sharedWindow{posts: map[[2]int]int{}, starts: map[[2]int]int{}, completes: map[[2]int]int{}, waits: map[[2]int]int{}}
		r.c.windows[comm.id] = shared
	}
	w := &Window{sharedWindow: shared, comm: comm, me: slices.Index(comm.members, r.rank), place: place, locks: map[int]*windowLock{}}
	r.windows = append(r.windows, w)
	return w
}

// op returns an operation on the window to wait for.
func (w *Window) op(kind opKind, place explore.Place) *Op {
	return &Op{Message: Message{Comm: w.comm, Place: place}, rank: w.comm.rank, kind: kind, win: w}
}

// Freed records that the window is freed.
func (w *Window) Freed() { w.freed = true }

// Fence records a fence, which has succeeded.
func (w *Window) Fence(noPrecede, noSucceed bool, place explore.Place) {
	w.comm.rank.tick()
	if noPrecede && w.used {
		w.comm.rank.c.report(BrokenAssert, "NoPrecede, and there are operations since the last fence", w.usedAt, place)
	}
	w.fence, w.used = epoch{place: place}, false
	if noSucceed {
		w.fence = epoch{}
	}
}

// Access records an operation on a target. In an epoch of LockAll it requests the lock.
func (w *Window) Access(target int, place explore.Place) {
	w.comm.rank.tick()
	w.used, w.usedAt = w.fence.isOpen(), place
	if w.lockAll.isOpen() && w.locks[target] == nil {
		w.request(target, windowLock{rank: w.me, target: target, place: place})
		if len(w.conflicting(w.locks[target])) == 0 {
			w.Locked(target)
		}
	}
}

// Post records a Post.
func (w *Window) Post(group []int, place explore.Place) {
	w.comm.rank.tick()
	w.post = epoch{place, slices.Clone(group)}
	for _, origin := range group {
		w.posts[[2]int{origin, w.me}]++
	}
}

// Start records a Start.
func (w *Window) Start(group []int, noCheck bool, place explore.Place) {
	w.comm.rank.tick()
	w.start = epoch{place, slices.Clone(group)}
	for _, target := range group {
		pair := [2]int{w.me, target}
		w.starts[pair]++
		if noCheck && w.posts[pair] < w.starts[pair] {
			w.comm.rank.c.report(BrokenAssert, fmt.Sprintf("NoCheck, and rank %d has not called Post", target), place)
		}
	}
}

// AwaitPosts returns what Complete waits for.
func (w *Window) AwaitPosts(place explore.Place) *Op {
	o := w.op(postOp, place)
	o.group = w.start.group
	return o
}

// Completed records that Complete has returned.
func (w *Window) Completed() {
	for _, target := range w.start.group {
		w.completes[[2]int{w.me, target}]++
	}
	w.start = epoch{}
}

// AwaitCompletes returns what Wait waits for.
func (w *Window) AwaitCompletes(place explore.Place) *Op {
	o := w.op(completeOp, place)
	o.group = w.post.group
	return o
}

// Waited records that Wait or Test has closed the exposure epoch.
func (w *Window) Waited() {
	w.comm.rank.tick()
	for _, origin := range w.post.group {
		w.waits[[2]int{origin, w.me}]++
	}
	w.post = epoch{}
}

// request records a lock that the rank requests.
func (w *Window) request(target int, l windowLock) *Op {
	w.locks[target] = &l
	o := w.op(lockOp, l.place)
	o.target = target
	return o
}

// Lock records that Lock is called, and returns what it waits for. With noCheck it does not wait.
func (w *Window) Lock(target int, exclusive, noCheck bool, place explore.Place) *Op {
	w.comm.rank.tick()
	o := w.request(target, windowLock{w.me, target, exclusive, noCheck, place})
	if noCheck {
		for _, l := range w.conflicting(w.locks[target]) {
			w.comm.rank.c.report(BrokenAssert, fmt.Sprintf("NoCheck, and another rank holds a lock of rank %d", target), l.place, place)
		}
	}
	return o
}

// Locked records that a lock is granted.
func (w *Window) Locked(target int) {
	if l := w.locks[target]; l != nil && !l.unchecked {
		w.sharedWindow.locks = append(w.sharedWindow.locks, *l)
	}
}

// Unlocked records an Unlock.
func (w *Window) Unlocked(target int) {
	w.comm.rank.tick()
	delete(w.locks, target)
	w.sharedWindow.locks = slices.DeleteFunc(w.sharedWindow.locks, func(l windowLock) bool { return l.rank == w.me && l.target == target })
}

// LockAll records a LockAll, and UnlockAll its end.
func (w *Window) LockAll(place explore.Place) {
	w.comm.rank.tick()
	w.lockAll = epoch{place: place}
}

// UnlockAll records that UnlockAll has returned.
func (w *Window) UnlockAll() {
	for target := range w.locks {
		w.Unlocked(target)
	}
	w.lockAll = epoch{}
}

// AwaitLocks returns the locks of LockAll that the rank may wait for.
func (w *Window) AwaitLocks() (all []*Op) {
	for target := range w.comm.members {
		if l := w.locks[target]; l != nil && w.lockAll.isOpen() {
			o := w.op(lockOp, l.place)
			o.target = target
			all = append(all, o)
		}
	}
	return all
}

// conflicting returns the locks of other ranks that exclude a lock.
func (w *Window) conflicting(l *windowLock) (all []windowLock) {
	for _, held := range w.sharedWindow.locks {
		if held.target == l.target && held.rank != l.rank && (held.exclusive || l.exclusive) {
			all = append(all, held)
		}
	}
	return all
}

// reportOpen reports the open epochs, and notes that the window cannot be freed.
func (w *Window) reportOpen() {
	c := w.comm.rank.c
	for _, x := range []struct {
		e    epoch
		text string
	}{{w.start, "Start without Complete"}, {w.post, "Post without Wait"}, {w.lockAll, "LockAll without UnlockAll"}} {
		if x.e.isOpen() {
			w.isOpen = true
			c.report(EpochOpen, x.text, x.e.place)
		}
	}
	for target := range w.comm.members {
		if l := w.locks[target]; l != nil && !w.lockAll.isOpen() {
			w.isOpen = true
			c.report(EpochOpen, fmt.Sprintf("Lock of rank %d without Unlock", target), l.place)
		}
	}
	if w.fence.isOpen() && w.used {
		w.isOpen = true
		c.report(EpochOpen, "operations after the last fence", w.usedAt)
	}
}

// reportLeak reports a window that is not freed, unless an open epoch is the reason.
func (w *Window) reportLeak() {
	if !w.freed && !w.isOpen {
		w.comm.rank.c.report(WindowLeak, w.comm.name, w.place)
	}
}
