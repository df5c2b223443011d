package racecheck_test

import "github.com/fabrictest/fabrictest/mpi"

// locked runs do in an epoch of a lock of rank 1 by some ranks.
func (r rank) locked(win *mpi.Win, kind mpi.LockKind, ranks []bool, do func()) {
	if !ranks[r.Rank()] {
		return
	}
	r.do(win.Lock(kind, 1, 0))
	do()
	r.do(win.Unlock(1))
}

// origins are the ranks of a program that access rank 1.
var origins = []bool{true, false, true}

// localModes are those of two accesses by rank 0 to a buffer.
var localModes = []mode{
	{"one fence phase", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.Fence(0))
		first()
		second()
		r.do(win.Fence(0))
	}, never},
	{"fence between", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.Fence(0))
		first()
		r.do(win.Fence(0))
		second()
		r.do(win.Fence(0))
	}, always},
	{"one lock", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Shared, origins, func() {
			first()
			second()
		})
	}, never},
	{"two locks", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Exclusive, origins, first)
		r.locked(win, mpi.Shared, origins, second)
	}, always},
	{"flush between", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Shared, origins, func() {
			first()
			r.do(win.Flush(1))
			second()
		})
	}, always},
	{"local flush between", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(win.FlushLocal(1))
		second()
		r.do(win.UnlockAll())
	}, always},
	{"flush of another rank between", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(win.Flush(0))
		second()
		r.do(win.UnlockAll())
	}, never},
	{"one start", func(r rank, win *mpi.Win, first, second func()) {
		r.startAndPost(win, func() {
			first()
			second()
		}, func() {})
	}, never},
	{"two starts", func(r rank, win *mpi.Win, first, second func()) {
		r.startAndPost(win, first, func() {})
		r.startAndPost(win, second, func() {})
	}, always},
}

// startAndPost runs origin in an access epoch of all other ranks to rank 1, which runs target in its exposure.
func (r rank) startAndPost(win *mpi.Win, origin, target func()) {
	if r.Rank() != 1 {
		r.do(win.Start([]int{1}, 0))
		origin()
		r.do(win.Complete())
		return
	}
	var group []int
	for i := range r.Size() {
		if i != 1 {
			group = append(group, i)
		}
	}
	r.do(win.Post(group, 0))
	target()
	r.do(win.Wait())
}

// targetModes are those of an access by rank 0 to rank 1, and one by rank 1 to its own window.
var targetModes = []mode{
	{"one fence phase", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.Fence(0))
		first()
		second()
		r.do(win.Fence(0))
	}, never},
	{"fence between", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.Fence(0))
		first()
		r.do(win.Fence(mpi.NoSucceed))
		second()
		r.do(win.Fence(mpi.NoPrecede))
	}, always},
	{"in the exposure", func(r rank, win *mpi.Win, first, second func()) { r.startAndPost(win, first, second) }, never},
	{"after the exposure", func(r rank, win *mpi.Win, first, second func()) {
		r.startAndPost(win, first, func() {})
		second()
	}, always},
	{"before the exposure", func(r rank, win *mpi.Win, first, second func()) {
		second()
		r.startAndPost(win, first, func() {})
	}, always},
	{"unlock only", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Shared, origins, first)
		second()
	}, never},
	{"barrier before unlock", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(r.Barrier())
		second()
		r.do(win.UnlockAll())
	}, never},
	{"unlock and barrier", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Shared, origins, first)
		r.do(r.Barrier())
		second()
	}, always},
	{"flush only", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(win.FlushAll())
		second()
		r.do(win.UnlockAll())
	}, never},
	{"local flush and barrier", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(win.FlushLocal(1))
		r.do(r.Barrier())
		second()
		r.do(win.UnlockAll())
	}, onceFetched},
	{"flush and barrier", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(win.Flush(1))
		r.do(r.Barrier())
		second()
		r.do(win.UnlockAll())
	}, always},
	{"flush and message", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		if r.Rank() == 0 {
			r.do(win.Flush(1))
			r.do(r.Send(nil, 1, 0))
		} else {
			r.receive(mpi.AnySource)
		}
		second()
		r.do(win.UnlockAll())
	}, always},
	{"message before flush", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		if r.Rank() == 0 {
			r.do(r.Send(nil, 1, 0))
			r.do(win.Flush(1))
		} else {
			r.receive(0)
		}
		second()
		r.do(win.UnlockAll())
	}, never},
	{"exclusive locks", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Exclusive, []bool{true, true}, func() {
			first()
			second()
		})
	}, always},
	{"shared locks", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Shared, []bool{true, true}, func() {
			first()
			second()
		})
	}, never},
}

// originsModes are those of accesses by ranks 0 and 2 to rank 1.
var originsModes = []mode{
	{"one fence phase", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.Fence(0))
		first()
		second()
		r.do(win.Fence(0))
	}, never},
	{"fence between", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.Fence(mpi.NoPrecede))
		first()
		r.do(win.Fence(0))
		second()
		r.do(win.Fence(mpi.NoSucceed))
	}, always},
	{"one exposure", func(r rank, win *mpi.Win, first, second func()) {
		r.startAndPost(win, func() {
			first()
			second()
		}, func() {})
	}, never},
	{"two exposures", func(r rank, win *mpi.Win, first, second func()) {
		r.startAndPost(win, first, func() {})
		r.startAndPost(win, second, func() {})
	}, always},
	{"shared locks", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Shared, origins, func() {
			first()
			second()
		})
	}, never},
	{"exclusive and shared lock", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Exclusive, []bool{true, false, false}, first)
		r.locked(win, mpi.Shared, []bool{false, false, true}, second)
	}, always},
	{"flush only", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(win.Flush(1))
		second()
		r.do(win.UnlockAll())
	}, never},
	{"barrier only", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(r.Barrier())
		second()
		r.do(win.UnlockAll())
	}, never},
	{"local flush and barrier", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(win.FlushLocalAll())
		r.do(r.Barrier())
		second()
		r.do(win.UnlockAll())
	}, onceFetched},
	{"flush and message", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(win.Flush(1))
		switch r.Rank() {
		case 0:
			r.do(r.Send(nil, 2, 0))
		case 2:
			r.receive(0)
		}
		second()
		r.do(win.UnlockAll())
	}, always},
}

// sameOriginModes are those of two accesses by rank 0 to rank 1.
var sameOriginModes = []mode{
	{"one fence phase", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.Fence(0))
		first()
		second()
		r.do(win.Fence(0))
	}, never},
	{"one exclusive lock", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Exclusive, origins, func() {
			first()
			second()
		})
	}, never},
	{"flush between", func(r rank, win *mpi.Win, first, second func()) {
		r.locked(win, mpi.Shared, origins, func() {
			first()
			r.do(win.Flush(1))
			second()
		})
	}, always},
	{"local flush between", func(r rank, win *mpi.Win, first, second func()) {
		r.do(win.LockAll(0))
		first()
		r.do(win.FlushLocalAll())
		second()
		r.do(win.UnlockAll())
	}, onceFetched},
}
