package racecheck_test

import "github.com/fabrictest/fabrictest/mpi"

// Programs for each way to synchronise: those that race, and twins of them that differ in one call. A line
// that races has a comment RACE.

func fenceLoadInPhase(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Get(b, 1, 0)) // RACE
		r.NoteLoad(b)          // RACE
	}
	r.do(win.Fence(0))
}

func fenceLoadAfterPhase(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Get(b, 1, 0))
	}
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.NoteLoad(b)
	}
}

func fenceTwoOriginsInPhase(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 2, 0)) // RACE
	}
	if r.Rank() == 1 {
		r.do(win.Get(b, 2, 0)) // RACE
	}
	r.do(win.Fence(0))
}

func fenceTwoOriginsInTwoPhases(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 2, 0))
	}
	r.do(win.Fence(0))
	if r.Rank() == 1 {
		r.do(win.Get(b, 2, 0))
	}
	r.do(win.Fence(0))
}

func lockLoadBeforeUnlock(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Get(b, 1, 0)) // RACE
		r.NoteLoad(b)          // RACE
		r.do(win.Unlock(1))
	}
	r.do(win.Free())
}

func lockLoadAfterUnlock(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Get(b, 1, 0))
		r.do(win.Unlock(1))
		r.NoteLoad(b)
	}
	r.do(win.Free())
}

func flushLoadBefore(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Get(b, 1, 0)) // RACE
		r.NoteLoad(b)          // RACE
		r.do(win.Flush(1))
		r.do(win.Unlock(1))
	}
	r.do(win.Free())
}

func flushLoadAfter(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Get(b, 1, 0))
		r.do(win.Flush(1))
		r.NoteLoad(b)
		r.do(win.Unlock(1))
	}
	r.do(win.Free())
}

func flushLocalAllLoadBefore(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Get(b, 1, 0)) // RACE
		r.NoteLoad(b)          // RACE
		r.do(win.FlushLocalAll())
	}
	r.do(win.UnlockAll())
}

func flushLocalAllLoadAfter(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Get(b, 1, 0))
		r.do(win.FlushLocalAll())
		r.NoteLoad(b)
	}
	r.do(win.UnlockAll())
}

func requestLoadBeforeWait(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		q := r.request(win.Rget(b, 1, 0)) // RACE
		r.NoteLoad(b)                     // RACE
		r.wait(q)
	}
	r.do(win.UnlockAll())
}

func requestLoadAfterWait(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		q := r.request(win.Rget(b, 1, 0))
		r.wait(q)
		r.NoteLoad(b)
	}
	r.do(win.UnlockAll())
}

func startLoadBeforeComplete(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Start([]int{1}, 0))
		r.do(win.Get(b, 1, 0)) // RACE
		r.NoteLoad(b)          // RACE
		r.do(win.Complete())
	} else {
		r.do(win.Post([]int{0}, 0))
		r.do(win.Wait())
	}
}

func startLoadAfterComplete(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Start([]int{1}, 0))
		r.do(win.Get(b, 1, 0))
		r.do(win.Complete())
		r.NoteLoad(b)
	} else {
		r.do(win.Post([]int{0}, 0))
		r.do(win.Wait())
	}
}

func twoOriginsInOneExposure(r rank) {
	win, b := r.window(8), buffer(8)
	switch r.Rank() {
	case 0:
		r.do(win.Start([]int{2}, 0))
		r.do(win.Put(b, 2, 0)) // RACE
		r.do(win.Complete())
	case 1:
		r.do(win.Start([]int{2}, 0))
		r.do(win.Get(b, 2, 0)) // RACE
		r.do(win.Complete())
	case 2:
		r.do(win.Post([]int{0, 1}, 0))
		r.do(win.Wait())
	}
}

func twoOriginsInTwoExposures(r rank) {
	win, b := r.window(8), buffer(8)
	switch r.Rank() {
	case 0:
		r.do(win.Start([]int{2}, 0))
		r.do(win.Put(b, 2, 0))
		r.do(win.Complete())
	case 1:
		r.do(win.Start([]int{2}, 0))
		r.do(win.Get(b, 2, 0))
		r.do(win.Complete())
	case 2:
		r.do(win.Post([]int{0}, 0))
		r.do(win.Wait())
		r.do(win.Post([]int{1}, 0))
		r.do(win.Wait())
	}
}

func flushAllWithoutBarrier(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 1, 0)) // RACE
		r.do(win.FlushAll())
	} else {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(win.UnlockAll())
}

func flushAllAndBarrier(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 1, 0))
		r.do(win.FlushAll())
	}
	r.do(r.Barrier())
	if r.Rank() == 1 {
		win.LoadLocal(0, 8)
	}
	r.do(win.UnlockAll())
}

func lockAllLoadInEpoch(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 1, 0)) // RACE
	}
	r.do(r.Barrier())
	if r.Rank() == 1 {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(win.UnlockAll())
	r.do(r.Barrier())
}

func unlockAllLoadBeforeBarrier(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 1, 0)) // RACE
	}
	r.do(win.UnlockAll())
	if r.Rank() == 1 {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(r.Barrier())
}

func unlockAllLoadAfterBarrier(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 1, 0))
	}
	r.do(win.UnlockAll())
	r.do(r.Barrier())
	if r.Rank() == 1 {
		win.LoadLocal(0, 8)
	}
}

func unlockAfterBarrier(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(b, 1, 0)) // RACE
		r.do(r.Barrier())
		r.do(r.Barrier())
		r.do(win.Unlock(1))
	} else {
		r.do(r.Barrier())
		win.LoadLocal(0, 8) // RACE
		r.do(r.Barrier())
	}
	r.do(win.Free())
}

func unlockLoadBeforeBarrier(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(b, 1, 0)) // RACE
		r.do(win.Unlock(1))
	} else {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(r.Barrier())
}

func unlockLoadAfterBarrier(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(b, 1, 0))
		r.do(win.Unlock(1))
	}
	r.do(r.Barrier())
	if r.Rank() == 1 {
		win.LoadLocal(0, 8)
	}
}

func sameOriginPutGet(r rank) {
	win, b, d := r.window(8), buffer(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 1, 0)) // RACE
		r.do(win.Get(d, 1, 0)) // RACE
	}
	r.do(win.UnlockAll())
}

func sameOriginPutFlushGet(r rank) {
	win, b, d := r.window(8), buffer(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 1, 0))
		r.do(win.Flush(1))
		r.do(win.Get(d, 1, 0))
	}
	r.do(win.UnlockAll())
}

func sameOriginPutFlushLocalGet(r rank) {
	win, b, d := r.window(8), buffer(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 1, 0)) // RACE
		r.do(win.FlushLocal(1))
		r.do(win.Get(d, 1, 0)) // RACE
	}
	r.do(win.UnlockAll())
}

func sameOriginGetFlushLocalGet(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Get(b, 1, 0))
		r.do(win.FlushLocal(1))
		r.do(win.Get(b, 1, 0))
	}
	r.do(win.UnlockAll())
}

// The lock of another window says nothing about which rank was first.
func lockOfOtherWindowAsSignal(r rank) {
	win, signal, b := r.window(8), r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(signal.Lock(mpi.Exclusive, 1, 0))
		r.do(win.Lock(mpi.Exclusive, 1, 0))
		r.do(win.Put(b, 1, 0)) // RACE
		r.do(win.Unlock(1))
		r.do(signal.Unlock(1))
	} else {
		r.Compute(1e6)
		r.do(signal.Lock(mpi.Exclusive, 1, 0))
		r.do(signal.Unlock(1))
		win.LoadLocal(0, 8) // RACE
	}
	r.do(r.Barrier())
}

func exclusiveLockOfBoth(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.Lock(mpi.Exclusive, 1, 0))
	if r.Rank() == 0 {
		r.do(win.Put(b, 1, 0))
	} else {
		win.LoadLocal(0, 8)
	}
	r.do(win.Unlock(1))
	r.do(r.Barrier())
}

func exclusiveLockOfTwoOrigins(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() < 2 {
		r.do(win.Lock(mpi.Exclusive, 2, 0))
		if r.Rank() == 0 {
			r.do(win.Put(b, 2, 0))
		} else {
			r.do(win.Get(b, 2, 0))
		}
		r.do(win.Unlock(2))
	}
	r.do(r.Barrier())
}

func loadBeforeReceive(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(b, 1, 0)) // RACE
		r.do(win.Unlock(1))
		r.do(r.Send(nil, 1, 0))
	} else {
		win.LoadLocal(0, 8) // RACE
		r.receive(0)
	}
}

func loadAfterMessageOfThird(r rank) {
	win, b := r.window(8), buffer(8)
	switch r.Rank() {
	case 0:
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(b, 1, 0)) // RACE
		r.do(win.Unlock(1))
	case 1:
		r.receive(2)
		win.LoadLocal(0, 8) // RACE
	case 2:
		r.Compute(1e6)
		r.do(r.Send(nil, 1, 0))
	}
}

func loadAfterReceive(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(b, 1, 0))
		r.do(win.Unlock(1))
		r.do(r.Send(nil, 1, 0))
	} else {
		r.receive(0)
		win.LoadLocal(0, 8)
	}
}

func putAfterMessageOfOtherOrigin(r rank) {
	win, b := r.window(8), buffer(8)
	put := func() {
		r.do(win.Lock(mpi.Shared, 2, 0))
		r.do(win.Put(b, 2, 0))
		r.do(win.Unlock(2))
	}
	switch r.Rank() {
	case 0:
		put()
		r.do(r.Send(nil, 1, 0))
	case 1:
		r.receive(0)
		put()
	}
}

// Polling a location is defined in the unified memory model, but no synchronisation.
func polling(r rank) {
	win, b := r.window(8), buffer(8)
	if r.Rank() == 0 {
		b[0] = 1
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(b, 1, 0)) // RACE
		r.do(win.Unlock(1))
	} else {
		r.do(win.Lock(mpi.Shared, 1, 0))
		for win.LoadLocal(0, 1)[0] == 0 { // RACE
			r.do(win.Sync())
		}
		r.do(win.Unlock(1))
	}
}
