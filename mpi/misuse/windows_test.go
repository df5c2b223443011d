package misuse_test

import (
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/misuse"
)

// onWindow runs a program with a window of 64 bytes at each rank.
func onWindow(do func(w *mpi.World, win *mpi.Win, wrong bool)) func(*mpi.World, bool) {
	return func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(64))
		do(w, win, wrong)
		if !wrong {
			ok(win.Free())
		}
	}
}

// freeAfter is onWindow for wrong programs that free the window too.
func freeAfter(do func(w *mpi.World, win *mpi.Win, wrong bool)) func(*mpi.World, bool) {
	return func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(64))
		do(w, win, wrong)
		ok(win.Free())
	}
}

// windows are programs with errors in their epochs, and deadlocks of windows.
var windows = []program{
	{"operations after the last fence", 2, misuse.EpochOpen, "0A 1A", onWindow(func(w *mpi.World, win *mpi.Win, wrong bool) {
		ok(win.Fence(0))
		ok(win.Put(word(), 1-w.Rank(), 8)) // A
		if !wrong {
			ok(win.Fence(mpi.NoSucceed))
		}
	})},
	{"start without complete", 2, misuse.EpochOpen, "0A", onWindow(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if w.Rank() == 0 {
			ok(win.Start(nil, 0)) // A
			if !wrong {
				ok(win.Complete())
			}
		}
	})},
	{"post without wait", 2, misuse.EpochOpen, "1A", onWindow(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if w.Rank() == 0 {
			ok(win.Start([]int{1}, 0))
			ok(win.Complete())
			return
		}
		ok(win.Post([]int{0}, 0)) // A
		if !wrong {
			ok(win.Wait())
		}
	})},
	{"lock without unlock", 2, misuse.EpochOpen, "0A", onWindow(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if w.Rank() == 0 {
			ok(win.Lock(mpi.Exclusive, 1, 0)) // A
			if !wrong {
				ok(win.Unlock(1))
			}
		}
	})},
	{"lock of all without unlock", 2, misuse.EpochOpen, "0A 1A", onWindow(func(w *mpi.World, win *mpi.Win, wrong bool) {
		ok(win.LockAll(0)) // A
		ok(win.Put(word(), 1-w.Rank(), 8*w.Rank()))
		if !wrong {
			ok(win.UnlockAll())
		}
	})},
	{"put without an epoch", 2, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if !wrong {
			ok(win.Fence(0))
		}
		if w.Rank() == 0 {
			_ = win.Put(word(), 1, 0) // A
		}
		if !wrong {
			ok(win.Fence(mpi.NoSucceed))
		}
	})},
	{"put after the last fence", 2, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		ok(win.Fence(0))
		if wrong {
			ok(win.Fence(mpi.NoSucceed))
		}
		if w.Rank() == 0 {
			_ = win.Put(word(), 1, 0) // A
		}
		if !wrong {
			ok(win.Fence(mpi.NoSucceed))
		}
	})},
	{"put to a rank outside of the group", 3, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		switch w.Rank() {
		case 0:
			ok(win.Start([]int{1}, 0))
			target := 1
			if wrong {
				target = 2
			}
			_ = win.Put(word(), target, 0) // A
			ok(win.Complete())
		case 1:
			ok(win.Post([]int{0}, 0))
			ok(win.Wait())
		}
	})},
	{"put to another rank than the locked one", 2, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if w.Rank() == 0 {
			target := 1
			if wrong {
				target = 0
			}
			ok(win.Lock(mpi.Shared, 1, 0))
			_ = win.Put(word(), target, 0) // A
			ok(win.Unlock(1))
		}
	})},
	{"request within fences", 2, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		ok(win.Fence(0))
		if w.Rank() == 0 {
			if wrong {
				_, _ = win.Rput(word(), 1, 0) // A
			} else {
				ok(win.Put(word(), 1, 0))
			}
		}
		ok(win.Fence(mpi.NoSucceed))
	})},
	{"lock within fences", 2, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		ok(win.Fence(0))
		ok(win.Put(word(), 1-w.Rank(), 8*w.Rank()))
		if wrong && w.Rank() == 0 {
			_ = win.Lock(mpi.Shared, 1, 0) // A
		}
		ok(win.Fence(mpi.NoSucceed))
		if !wrong && w.Rank() == 0 {
			ok(win.Lock(mpi.Shared, 1, 0))
			ok(win.Unlock(1))
		}
	})},
	{"second lock of a rank", 2, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if w.Rank() == 0 {
			ok(win.Lock(mpi.Shared, 1, 0))
			if !wrong {
				ok(win.Unlock(1))
			}
			_ = win.Lock(mpi.Shared, 1, 0) // A
			ok(win.Unlock(1))
		}
	})},
	{"unlock without lock", 2, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if w.Rank() == 0 {
			if !wrong {
				ok(win.Lock(mpi.Shared, 1, 0))
			}
			_ = win.Unlock(1) // A
		}
	})},
	{"flush within fences", 2, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		ok(win.Fence(0))
		ok(win.Put(word(), 1-w.Rank(), 8*w.Rank()))
		if wrong && w.Rank() == 0 {
			_ = win.Flush(1) // A
		}
		ok(win.Fence(mpi.NoSucceed))
	})},
	{"complete without start", 1, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if !wrong {
			ok(win.Start(nil, 0))
		}
		_ = win.Complete() // A
	})},
	{"wait without post", 1, misuse.EpochMisuse, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if !wrong {
			ok(win.Post(nil, 0))
		}
		_ = win.Wait() // A
	})},
	{"window is freed within an epoch", 1, misuse.EpochMisuse, "0A", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		ok(win.LockAll(0))
		if wrong {
			_ = win.Free() // A
		}
		ok(win.UnlockAll())
		ok(win.Free())
	}},
	{"put outside of the window", 2, misuse.Argument, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		ok(win.Fence(0))
		offset := 56
		if wrong {
			offset++
		}
		if w.Rank() == 0 {
			_ = win.Put(word(), 1, offset) // A
		}
		ok(win.Fence(mpi.NoSucceed))
	})},
	{"result overlaps the origin", 1, misuse.Argument, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		ok(win.Fence(0))
		in, out := word(), word()
		if wrong {
			out = in
		}
		_ = win.FetchAndOp(in, out, 0, 0, mpi.Int64, mpi.Sum) // A
		ok(win.Fence(mpi.NoSucceed))
	})},
	{"no operation precedes, says a fence after one", 2, misuse.BrokenAssert, "0A 0B", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		ok(win.Fence(0))
		if w.Rank() == 0 {
			ok(win.Put(word(), 1, 0)) // A
		}
		a := mpi.NoPut
		if wrong {
			a = mpi.NoPrecede
		}
		ok(win.Fence(a)) // B
		ok(win.Fence(mpi.NoSucceed))
	})},
	{"start without a check before the post", 2, misuse.BrokenAssert, "0A", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if w.Rank() == 0 {
			if !wrong {
				get(w.Recv(nil, 1, 1))
			}
			ok(win.Start([]int{1}, mpi.NoCheck)) // A
			ok(win.Complete())
			if wrong {
				ok(w.Send(nil, 1, 1))
			}
			return
		}
		if wrong {
			get(w.Recv(nil, 0, 1))
		}
		ok(win.Post([]int{0}, mpi.NoCheck))
		if !wrong {
			ok(w.Send(nil, 0, 1))
		}
		ok(win.Wait())
	})},
	{"lock without a check against a held one", 2, misuse.BrokenAssert, "0A 1B", freeAfter(func(w *mpi.World, win *mpi.Win, wrong bool) {
		if w.Rank() == 0 {
			ok(win.Lock(mpi.Exclusive, 1, 0)) // A
			if !wrong {
				ok(win.Unlock(1))
			}
		}
		ok(w.Barrier())
		if w.Rank() == 1 {
			ok(win.Lock(mpi.Exclusive, 1, mpi.NoCheck)) // B
			ok(win.Unlock(1))
		}
		ok(w.Barrier())
		if w.Rank() == 0 && wrong {
			ok(win.Unlock(1))
		}
	})},

	{"locks of two windows in opposite order", 2, misuse.LockOrder, "0A 1A", func(w *mpi.World, wrong bool) {
		a, b := get(w.WinAllocate(8)), get(w.WinAllocate(8))
		first, second := a, b
		if wrong && w.Rank() == 1 {
			first, second = b, a
		}
		ok(first.Lock(mpi.Exclusive, 0, 0))
		if wrong {
			ok(w.Barrier())
		}
		ok(second.Lock(mpi.Exclusive, 0, 0)) // A
		ok(second.Unlock(0))
		ok(first.Unlock(0))
		ok(a.Free())
		ok(b.Free())
	}},
	{"locks of two ranks in opposite order", 2, misuse.LockOrder, "0A 1A", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		first, second := 0, 1
		if wrong && w.Rank() == 1 {
			first, second = 1, 0
		}
		ok(win.Lock(mpi.Exclusive, first, 0))
		if wrong {
			ok(w.Barrier())
		}
		ok(win.Lock(mpi.Exclusive, second, 0)) // A
		ok(win.Unlock(second))
		ok(win.Unlock(first))
		ok(win.Free())
	}},
	{"exclusive lock over a barrier", 2, misuse.LockHeld, "0A 1B", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if w.Rank() == 0 {
			ok(win.Lock(mpi.Exclusive, 1, 0))
			ok(w.Send(nil, 1, 1))
			if !wrong {
				ok(win.Unlock(1))
			}
			ok(w.Barrier()) // A
			if wrong {
				ok(win.Unlock(1))
			}
		} else {
			get(w.Recv(nil, 0, 1))
			ok(win.Lock(mpi.Shared, 1, 0)) // B
			ok(win.Unlock(1))
			ok(w.Barrier())
		}
		ok(win.Free())
	}},
	{"exclusive lock while waiting for a message", 2, misuse.LockHeld, "0A 1B", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if w.Rank() == 0 {
			ok(win.Lock(mpi.Exclusive, 1, 0))
			ok(w.Send(nil, 1, 1))
			if !wrong {
				ok(win.Unlock(1))
			}
			get(w.Recv(nil, 1, 2)) // A
			if wrong {
				ok(win.Unlock(1))
			}
		} else {
			get(w.Recv(nil, 0, 1))
			ok(win.Lock(mpi.Exclusive, 1, 0)) // B
			ok(win.Unlock(1))
			ok(w.Send(nil, 0, 2))
		}
		ok(win.Free())
	}},
	{"exclusive lock and operations of a lock of all", 2, misuse.LockHeld, "0A 1B 1C", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if w.Rank() == 0 {
			ok(win.Lock(mpi.Exclusive, 1, 0))
			ok(w.Send(nil, 1, 1))
			if !wrong {
				ok(win.Unlock(1))
			}
			get(w.Recv(nil, 1, 2)) // A
			if wrong {
				ok(win.Unlock(1))
			}
		} else {
			get(w.Recv(nil, 0, 1))
			ok(win.LockAll(0))
			ok(win.Put(word(), 1, 0)) // C
			ok(win.UnlockAll())       // B
			ok(w.Send(nil, 0, 2))
		}
		ok(win.Free())
	}},
	{"lock is held at the end", 2, misuse.LockHeld, "1A", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if w.Rank() == 0 {
			ok(win.Lock(mpi.Exclusive, 0, 0))
			ok(w.Send(nil, 1, 1))
			if wrong {
				return
			}
			ok(win.Unlock(0))
		} else {
			get(w.Recv(nil, 0, 1))
			ok(win.Lock(mpi.Shared, 0, 0)) // A
			ok(win.Unlock(0))
		}
		ok(win.Free())
	}},
	{"start without post", 2, misuse.PostStart, "0A", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if w.Rank() == 0 {
			ok(win.Start([]int{1}, 0))
			ok(win.Put(word(), 1, 0))
			ok(win.Complete()) // A
		} else if !wrong {
			ok(win.Post([]int{0}, 0))
			ok(win.Wait())
		}
		if !wrong {
			ok(win.Free())
		}
	}},
	{"post without complete", 2, misuse.PostStart, "1A", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if w.Rank() == 1 {
			ok(win.Post([]int{0}, 0))
			ok(win.Wait()) // A
		} else if !wrong {
			ok(win.Start([]int{1}, 0))
			ok(win.Complete())
		}
		if !wrong {
			ok(win.Free())
		}
	}},
	{"groups of post and start differ", 3, misuse.PostStart, "1A 2B", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		switch w.Rank() {
		case 0:
			ok(win.Start([]int{1}, 0))
			ok(win.Complete())
		case 1:
			group := []int{0}
			if wrong {
				group = []int{0, 2}
			}
			ok(win.Post(group, 0))
			ok(win.Wait()) // A
			if wrong {
				ok(w.Send(nil, 2, 1))
			}
		case 2:
			if wrong {
				get(w.Recv(nil, 1, 1)) // B
			}
		}
		ok(win.Free())
	}},
	{"waits for each other's complete", 2, misuse.PostStart, "0A 1A", func(w *mpi.World, wrong bool) {
		win, other := get(w.WinAllocate(8)), []int{1 - w.Rank()}
		ok(win.Post(other, 0))
		if !wrong {
			ok(win.Start(other, 0))
			ok(win.Complete())
		}
		ok(win.Wait()) // A
		if wrong {
			ok(win.Start(other, 0))
			ok(win.Complete())
		}
		ok(win.Free())
	}},
	{"fence and barrier in opposite order", 2, misuse.CrossedComms, "0A 1B", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		inOrder(w, wrong, func() {
			ok(win.Fence(0)) // A
		}, func() {
			ok(w.Barrier()) // B
		})
		ok(win.Free())
	}},
}
