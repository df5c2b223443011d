package racecheck_test

import "github.com/fabrictest/fabrictest/mpi"

// Programs for single rules. A line that races has a comment RACE.

// poll makes progress until other ranks have nothing left to do but wait for this one.
func (r rank) poll() {
	for range 1000 {
		_, _, err := r.Iprobe(mpi.AnySource, mpi.TagMax)
		r.do(err)
	}
}

// after has rank 0 put and flush before sync, and rank 1 load after it.
func (r rank) after(sync func()) {
	win := r.window(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Flush(1))
	} else {
		r.poll()
	}
	sync()
	if r.Rank() == 1 {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(win.UnlockAll())
}

func adjacent(r rank) {
	win := r.window(16)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Put(buffer(7), 1, 0))
	} else {
		win.StoreLocal(7, buffer(9))
	}
	r.do(win.Fence(0))
}

func partialOverlap(r rank) {
	win := r.window(16)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Put(buffer(8), 1, 0)) // RACE
	} else {
		win.StoreLocal(7, buffer(9)) // RACE
	}
	r.do(win.Fence(0))
}

// overlappingWindows returns two windows, the second of which starts at an offset in the first.
func (r rank) overlappingWindows(offset int) (*mpi.Win, *mpi.Win) {
	mem := buffer(32)
	a, err := r.WinCreate(mem)
	r.do(err)
	b, err := r.WinCreate(mem[offset:])
	r.do(err)
	return a, b
}

// A lock of one window orders nothing in another window on the same memory.
func locksOfOverlappingWindows(r rank) {
	a, b := r.overlappingWindows(0)
	switch r.Rank() {
	case 0:
		r.do(a.Lock(mpi.Exclusive, 1, 0))
		r.do(a.Put(buffer(8), 1, 0)) // RACE
		r.do(a.Unlock(1))
	case 2:
		r.Compute(1e6)
		r.do(b.Lock(mpi.Exclusive, 1, 0))
		r.do(b.Put(buffer(8), 1, 0)) // RACE
		r.do(b.Unlock(1))
	}
	r.do(r.Barrier())
}

func barrierBetweenOverlappingWindows(r rank) {
	a, b := r.overlappingWindows(0)
	if r.Rank() == 0 {
		r.do(a.Lock(mpi.Exclusive, 1, 0))
		r.do(a.Put(buffer(8), 1, 0))
		r.do(a.Unlock(1))
	}
	r.do(r.Barrier())
	if r.Rank() == 2 {
		r.do(b.Lock(mpi.Exclusive, 1, 0))
		r.do(b.Put(buffer(8), 1, 0))
		r.do(b.Unlock(1))
	}
	r.do(r.Barrier())
}

func accumulatesOfSameElements(r rank) {
	a, b := r.overlappingWindows(8)
	r.do(a.Fence(0))
	r.do(b.Fence(0))
	if r.Rank() == 0 {
		r.do(a.Accumulate(buffer(16), 1, 0, mpi.Int64, mpi.Sum))
	} else {
		r.do(b.Accumulate(buffer(8), 1, 0, mpi.Int64, mpi.Sum))
	}
	r.do(a.Fence(0))
	r.do(b.Fence(0))
}

func accumulatesOfDisplacedElements(r rank) {
	a, b := r.overlappingWindows(4)
	r.do(a.Fence(0))
	r.do(b.Fence(0))
	if r.Rank() == 0 {
		r.do(a.Accumulate(buffer(16), 1, 0, mpi.Int64, mpi.Sum)) // RACE
	} else {
		r.do(b.Accumulate(buffer(8), 1, 0, mpi.Int64, mpi.Sum)) // RACE
	}
	r.do(a.Fence(0))
	r.do(b.Fence(0))
}

func accumulatesOfTwoTypes(r rank) {
	win := r.window(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Accumulate(buffer(8), 2, 0, mpi.Int64, mpi.Sum)) // RACE
	}
	if r.Rank() == 1 {
		r.do(win.Accumulate(buffer(8), 2, 0, mpi.Int32, mpi.Sum)) // RACE
	}
	r.do(win.Fence(0))
}

func accumulatesOfTwoTypesOfOneSize(r rank) {
	win := r.window(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Accumulate(buffer(8), 1, 0, mpi.Int64, mpi.Sum))  // RACE
		r.do(win.Accumulate(buffer(8), 1, 0, mpi.Uint64, mpi.Sum)) // RACE
	}
	r.do(win.Fence(0))
}

// fetchedByTwoTypes only reads, with any types.
func fetchedByTwoTypes(r rank) {
	win := r.window(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.GetAccumulate(nil, buffer(8), 1, 0, mpi.Int64, mpi.NoOp))
	} else {
		r.do(win.GetAccumulate(nil, buffer(8), 1, 0, mpi.Int32, mpi.NoOp))
	}
	r.do(win.Fence(0))
}

func getIntoOwnWindow(r rank) {
	win := r.window(8)
	r.do(win.Fence(0))
	switch r.Rank() {
	case 0:
		r.do(win.Put(buffer(8), 1, 0)) // RACE
	case 1:
		r.do(win.Get(win.Memory(), 2, 0)) // RACE
	}
	r.do(win.Fence(0))
}

func getIntoOwnWindowLater(r rank) {
	win := r.window(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Put(buffer(8), 1, 0))
	}
	r.do(win.Fence(0))
	if r.Rank() == 1 {
		r.do(win.Get(win.Memory(), 2, 0))
	}
	r.do(win.Fence(0))
}

// A request of a put completes at the origin only.
func requestIsNotRemoteCompletion(r rank) {
	win := r.window(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.wait(r.request(win.Rput(buffer(8), 1, 0))) // RACE
	}
	r.do(r.Barrier())
	if r.Rank() == 2 {
		r.wait(r.request(win.Rget(buffer(8), 1, 0))) // RACE
	}
	r.do(win.UnlockAll())
}

func requestAndFlush(r rank) {
	win := r.window(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.wait(r.request(win.Rput(buffer(8), 1, 0)))
		r.do(win.Flush(1))
	}
	r.do(r.Barrier())
	if r.Rank() == 2 {
		r.wait(r.request(win.Rget(buffer(8), 1, 0)))
	}
	r.do(win.UnlockAll())
}

// Data that has been fetched has been read.
func putAfterFetchedRequest(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.wait(r.request(win.Rget(b, 1, 0)))
		r.do(win.Put(b, 1, 0))
	}
	r.do(win.UnlockAll())
}

func requestOfAccumulate(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		q := r.request(win.Raccumulate(b, 1, 0, mpi.Int64, mpi.Sum)) // RACE
		r.NoteStore(b)                                               // RACE
		r.wait(q)
	}
	r.do(win.UnlockAll())
}

func requestsOfAll(r rank) {
	win, b, d := r.window(8), buffer(8), buffer(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		q := []*mpi.Request{
			r.request(win.RgetAccumulate(b, d, 1, 0, mpi.Int64, mpi.Sum)),
			r.request(win.Raccumulate(b, 1, 0, mpi.Int64, mpi.Sum)),
		}
		_, err := mpi.WaitAll(q)
		r.do(err)
		r.NoteStore(b)
		r.NoteLoad(d)
	}
	r.do(win.UnlockAll())
}

func syncAndBarrier(r rank) {
	win := r.window(8)
	r.do(win.LockAll(0))
	if r.Rank() == 1 {
		win.StoreLocal(0, buffer(8))
		r.do(win.Sync())
	}
	r.do(r.Barrier())
	if r.Rank() == 0 {
		r.do(win.Get(buffer(8), 1, 0))
	}
	r.do(win.UnlockAll())
}

// Sync orders no ranks.
func syncWithoutBarrier(r rank) {
	win := r.window(8)
	r.do(win.LockAll(0))
	if r.Rank() == 1 {
		win.StoreLocal(0, buffer(8)) // RACE
		r.do(win.Sync())
	} else {
		r.do(win.Sync())
		r.do(win.Get(buffer(8), 1, 0)) // RACE
	}
	r.do(win.UnlockAll())
}

// A lock with NoCheck excludes nothing.
func uncheckedLocks(r rank) {
	win := r.window(8)
	if r.Rank() != 1 {
		r.do(win.Lock(mpi.Exclusive, 1, mpi.NoCheck))
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Unlock(1))
	}
	r.do(r.Barrier())
}

func uncheckedLocksAndBarrier(r rank) {
	win := r.window(8)
	for origin := range 2 {
		if r.Rank() == 2*origin {
			r.do(win.Lock(mpi.Exclusive, 1, mpi.NoCheck))
			r.do(win.Put(buffer(8), 1, 0))
			r.do(win.Unlock(1))
		}
		r.do(r.Barrier())
	}
}

// The owner of the window needs the lock, too.
func exclusiveLockOfOriginOnly(r rank) {
	win := r.window(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Exclusive, 1, 0))
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Unlock(1))
	} else {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(r.Barrier())
}

// A rank that has read under the lock what another one has written there knows that it comes later.
func flagUnderExclusiveLock(r rank) {
	win := r.window(16)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(buffer(8), 1, 8))
		r.do(win.Unlock(1))
		r.do(win.Lock(mpi.Exclusive, 1, 0))
		r.do(win.Put([]byte{1}, 1, 0))
		r.do(win.Unlock(1))
	} else {
		for isSet := false; !isSet; {
			r.do(win.Lock(mpi.Exclusive, 1, 0))
			isSet = win.LoadLocal(0, 1)[0] == 1
			r.do(win.Unlock(1))
		}
		win.LoadLocal(8, 8)
	}
	r.do(r.Barrier())
}

// A rank that has not read the flag does not know.
func flagNotRead(r rank) {
	win := r.window(16)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(buffer(8), 1, 8)) // RACE
		r.do(win.Unlock(1))
		r.do(win.Lock(mpi.Exclusive, 1, 0))
		r.do(win.Put([]byte{1}, 1, 0))
		r.do(win.Unlock(1))
	} else {
		r.Compute(1e6)
		r.do(win.Lock(mpi.Exclusive, 1, 0))
		win.LoadLocal(1, 1)
		r.do(win.Unlock(1))
		win.LoadLocal(8, 8) // RACE
	}
	r.do(r.Barrier())
}

// A fence that ends no epoch lets operations of its epoch wait for the target's fence.
func storeBeforeOpeningFence(r rank) {
	win := r.window(8)
	if r.Rank() == 1 {
		win.StoreLocal(0, buffer(8))
	}
	r.do(win.Fence(mpi.NoPrecede))
	if r.Rank() == 0 {
		r.do(win.Put(buffer(8), 1, 0))
	}
	r.do(win.Fence(mpi.NoSucceed))
}

// Such a fence orders nothing else.
func openingFenceAsBarrier(r rank) {
	win, other := r.window(8), r.window(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Unlock(1))
	}
	r.do(other.Fence(mpi.NoPrecede))
	if r.Rank() == 1 {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(other.Fence(mpi.NoSucceed))
}

func fenceOfOtherWindowAsBarrier(r rank) {
	win, other := r.window(8), r.window(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(buffer(8), 1, 0))
		r.do(win.Unlock(1))
	}
	r.do(other.Fence(0))
	if r.Rank() == 1 {
		win.LoadLocal(0, 8)
	}
	r.do(other.Fence(mpi.NoSucceed))
}

// A fence of another window completes nothing.
func fenceOfOtherWindowAsFlush(r rank) {
	win, other := r.window(8), r.window(8)
	r.do(win.Fence(0))
	r.do(other.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Put(buffer(8), 1, 0)) // RACE
	}
	r.do(other.Fence(0))
	if r.Rank() == 1 {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(win.Fence(0))
}

// NoPrecede says that there is no operation to complete.
func wrongNoPrecede(r rank) {
	win := r.window(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Put(buffer(8), 1, 0)) // RACE
	}
	r.do(win.Fence(mpi.NoPrecede))
	r.do(r.Barrier())
	if r.Rank() == 1 {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(win.Fence(mpi.NoSucceed))
}

// A later access to a part of the memory does not stand for an earlier one to all of it.
func storeOfAllBeforeStoreOfPart(r rank) {
	win := r.window(8)
	if r.Rank() == 1 {
		win.StoreLocal(0, buffer(8)) // RACE
		win.StoreLocal(0, buffer(4))
	} else {
		r.Compute(1e6)
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Get(buffer(4), 1, 4)) // RACE
		r.do(win.Unlock(1))
	}
	r.do(r.Barrier())
}

// Nor does one under a lock stand for one without.
func storeBeforeStoreUnderLock(r rank) {
	win := r.window(8)
	if r.Rank() == 1 {
		win.StoreLocal(0, buffer(8)) // RACE
		r.do(win.Lock(mpi.Exclusive, 1, 0))
		win.StoreLocal(0, buffer(8))
		r.do(win.Unlock(1))
	} else {
		r.Compute(1e6)
		r.do(win.Lock(mpi.Exclusive, 1, 0))
		r.do(win.Get(buffer(8), 1, 0)) // RACE
		r.do(win.Unlock(1))
	}
	r.do(r.Barrier())
}

// An operation waits for the Post, even if its call came first.
func storeBeforePost(r rank) {
	win := r.window(8)
	if r.Rank() == 0 {
		r.do(win.Start([]int{1}, 0))
		r.do(win.Put(buffer(8), 1, 0))
		r.do(win.Complete())
	} else {
		r.Compute(1e6)
		win.StoreLocal(0, buffer(8))
		r.do(win.Post([]int{0}, 0))
		r.do(win.Wait())
	}
}

func testInsteadOfWait(r rank) {
	win := r.window(8)
	if r.Rank() == 0 {
		r.do(win.Start([]int{1}, 0))
		r.Compute(1e6)
		r.do(win.Put(buffer(8), 1, 0))
		r.do(win.Complete())
	} else {
		r.do(win.Post([]int{0}, 0))
		for done := false; !done; {
			var err error
			done, err = win.Test()
			r.do(err)
		}
		win.LoadLocal(0, 8)
	}
}

func testWithoutSuccess(r rank) {
	win := r.window(8)
	if r.Rank() == 0 {
		r.do(win.Start([]int{1}, 0))
		r.Compute(1e6)
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Complete())
	} else {
		r.do(win.Post([]int{0}, 0))
		_, err := win.Test()
		r.do(err)
		win.LoadLocal(0, 8) // RACE
		r.do(win.Wait())
	}
}

// Complete does not say that the data is at the target.
func completeAndMessageToThird(r rank) {
	win := r.window(8)
	switch r.Rank() {
	case 0:
		r.do(win.Start([]int{1}, 0))
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Complete())
		r.do(r.Send(nil, 2, 0))
	case 1:
		r.do(win.Post([]int{0}, 0))
		r.do(win.Wait())
	case 2:
		r.receive(0)
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Get(buffer(8), 1, 0)) // RACE
		r.do(win.Unlock(1))
	}
	r.do(r.Barrier())
}

func waitAndMessageToThird(r rank) {
	win := r.window(8)
	switch r.Rank() {
	case 0:
		r.do(win.Start([]int{1}, 0))
		r.do(win.Put(buffer(8), 1, 0))
		r.do(win.Complete())
	case 1:
		r.do(win.Post([]int{0}, 0))
		r.do(win.Wait())
		r.do(r.Send(nil, 2, 0))
	case 2:
		r.receive(1)
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Get(buffer(8), 1, 0))
		r.do(win.Unlock(1))
	}
	r.do(r.Barrier())
}

// With NoCheck, Start does not wait for Post: the program must.
func uncheckedStart(r rank) {
	win := r.window(8)
	if r.Rank() == 0 {
		r.Compute(1e6)
		r.do(win.Start([]int{1}, mpi.NoCheck))
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Complete())
	} else {
		win.StoreLocal(0, buffer(8)) // RACE
		r.do(win.Post([]int{0}, mpi.NoCheck))
		r.do(win.Wait())
	}
}

func uncheckedStartAfterMessage(r rank) {
	win := r.window(8)
	if r.Rank() == 0 {
		r.receive(1)
		r.do(win.Start([]int{1}, mpi.NoCheck))
		r.do(win.Put(buffer(8), 1, 0))
		r.do(win.Complete())
	} else {
		win.StoreLocal(0, buffer(8))
		r.do(win.Post([]int{0}, mpi.NoCheck))
		r.do(r.Send(nil, 0, 0))
		r.do(win.Wait())
	}
}

func memoryOfFreedWindow(r rank) {
	win := r.window(8)
	if r.Rank() == 0 {
		r.do(win.Lock(mpi.Shared, 1, 0))
		r.do(win.Put(buffer(8), 1, 0))
		r.do(win.Unlock(1))
	}
	mem := win.Memory()
	r.do(win.Free())
	if r.Rank() == 1 {
		r.NoteLoad(mem)
	}
}

// The calls that race may be anywhere: in functions, by function values, on other slices of the memory.
func deepCalls(r rank) {
	win := r.window(16)
	var descend func(n int, f func())
	descend = func(n int, f func()) {
		if n == 0 {
			f()
			return
		}
		descend(n-1, f)
	}
	r.do(win.Fence(0))
	alias := win.Memory()[4:12]
	descend(10, func() {
		if r.Rank() == 0 {
			r.do(win.Put(buffer(8), 1, 0)) // RACE
		} else {
			copy(buffer(2), alias)
			r.NoteLoad(alias[:2]) // RACE
		}
	})
	r.do(win.Fence(0))
}
