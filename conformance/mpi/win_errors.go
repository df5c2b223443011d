package mpi

import "github.com/fabrictest/fabrictest/mpi"

var rmaErrorCases = []Case{{
	ID: "mpi/rma-error/range", Cite: rule("mpi/11.6/1"),
	Title:   "Operations beyond a window are errors, and change nothing",
	Sends:   "puts, gets and accumulates that end one byte too far, begin behind the end, or before the beginning",
	Expects: "ErrRMARange; the window as it was; a good put in the same epoch arrives",
	Defects: []string{"RangesUnchecked", "RangeErrorWrites", "ErrorWedges"}, Run: func(t *T) {
		w := t.window(64)
		w.lockAll()
		b := data(9, 16)
		for _, at := range []int{49, 64, 1 << 40, -1, -64} {
			t.mustFail("Put", w.Put(b, t.other(), at), mpi.ErrRMARange)
			t.mustFail("Get", w.Get(make([]byte, 16), t.other(), at), mpi.ErrRMARange)
		}
		for _, at := range []int{56, 64, -8} {
			t.mustFail("Accumulate", w.Accumulate(b, t.other(), at, mpi.Uint64, mpi.Sum), mpi.ErrRMARange)
		}
		t.mustFail("FetchAndOp", w.FetchAndOp(word(1), make([]byte, 8), t.other(), 64, mpi.Uint64, mpi.Sum), mpi.ErrRMARange)
		t.mustFail("CompareAndSwap", w.CompareAndSwap(word(1), word(0), make([]byte, 8), t.other(), 64, mpi.Uint64), mpi.ErrRMARange)
		w.put(data(t.Rank(), 16), t.other(), 0)
		w.unlockAll()
		w.expectOwnAfterBarrier("the window", 0, append(data(t.other(), 16), make([]byte, 48)...))
	},
}, {
	ID: "mpi/rma-error/no-epoch", Cite: rule("mpi/11.5/1"),
	Title:   "Operations outside of an epoch are errors",
	Sends:   "all operations on a new window, after an epoch of locks or a last fence, and on a target outside of the group of Start or not locked",
	Expects: "ErrRMASync; the window as it was",
	Defects: []string{"EpochsUnchecked"}, Run: func(t *T) {
		w := t.window(16)
		b := data(1, 8)
		none := func() {
			t.mustFail("Put", w.Put(b, t.other(), 0), mpi.ErrRMASync)
			t.mustFail("Get", w.Get(b, t.other(), 0), mpi.ErrRMASync)
			t.mustFail("Accumulate", w.Accumulate(b, t.other(), 0, mpi.Uint64, mpi.Sum), mpi.ErrRMASync)
			t.mustFail("FetchAndOp", w.FetchAndOp(b, make([]byte, 8), t.other(), 0, mpi.Uint64, mpi.Sum), mpi.ErrRMASync)
			t.mustFail("CompareAndSwap", w.CompareAndSwap(b, b, make([]byte, 8), t.other(), 0, mpi.Uint64), mpi.ErrRMASync)
		}
		none()
		w.lock(mpi.Shared, t.other())
		w.unlock(t.other())
		none()
		w.lock(mpi.Shared, t.Rank())
		none()
		w.unlock(t.Rank())
		w.fence(0)
		w.fence(mpi.NoSucceed)
		none()
		w.start()
		none()
		w.complete()
		w.post(t.Rank())
		w.start(t.Rank())
		none()
		w.complete()
		w.wait()
		w.expectOwn("the window", 0, make([]byte, 16))
	},
}, {
	ID: "mpi/rma-error/requests-need-locks", Cite: rule("mpi/11.3.5/4"),
	Title:   "Operations with requests are errors outside of epochs of locks",
	Sends:   "Rput, Rget and Raccumulate between fences, and Rput after Start",
	Expects: "ErrRMASync; a plain put there arrives",
	Defects: []string{"EpochsUnchecked"}, Run: func(t *T) {
		w := t.window(8)
		b := data(5, 8)
		w.fence(0)
		t.mustFail("Rput", errorOf(w.Rput(b, t.other(), 0)), mpi.ErrRMASync)
		t.mustFail("Rget", errorOf(w.Rget(b, t.other(), 0)), mpi.ErrRMASync)
		t.mustFail("Raccumulate", errorOf(w.Raccumulate(b, t.other(), 0, mpi.Uint64, mpi.Sum)), mpi.ErrRMASync)
		w.put(data(t.Rank(), 8), t.other(), 0)
		w.fence(mpi.NoSucceed)
		t.expectEqual("the window", w.Memory(), data(t.other(), 8))
		w.post(t.other())
		w.start(t.other())
		t.mustFail("Rput after Start", errorOf(w.Rput(b, t.other(), 0)), mpi.ErrRMASync)
		w.complete()
		w.wait()
	},
}, {
	ID: "mpi/rma-error/unpaired-calls", Cite: rule("mpi/11.5/2"),
	Title:   "Calls that end what was not begun are errors",
	Sends:   "Unlock, UnlockAll, Complete, Wait and the flushes without their beginnings; Lock and LockAll twice",
	Expects: "ErrRMASync of each; the window works",
	Defects: []string{"EpochsUnchecked", "ErrorWedges"}, Run: func(t *T) {
		w := t.window(8)
		t.mustFail("Unlock", w.Unlock(t.other()), mpi.ErrRMASync)
		t.mustFail("UnlockAll", w.UnlockAll(), mpi.ErrRMASync)
		t.mustFail("Complete", w.Complete(), mpi.ErrRMASync)
		t.mustFail("Wait", w.Wait(), mpi.ErrRMASync)
		t.mustFail("Test", errorOf(w.Test()), mpi.ErrRMASync)
		t.mustFail("Flush", w.Flush(t.other()), mpi.ErrRMASync)
		t.mustFail("FlushLocal", w.FlushLocal(t.other()), mpi.ErrRMASync)
		t.mustFail("FlushAll", w.FlushAll(), mpi.ErrRMASync)
		t.mustFail("FlushLocalAll", w.FlushLocalAll(), mpi.ErrRMASync)
		t.mustFail("Sync", w.Sync(), mpi.ErrRMASync)
		w.lock(mpi.Shared, t.other())
		t.mustFail("UnlockAll after Lock", w.UnlockAll(), mpi.ErrRMASync)
		t.mustFail("Flush of another", w.Flush(t.Rank()), mpi.ErrRMASync)
		t.mustFail("FlushLocal of another", w.FlushLocal(t.Rank()), mpi.ErrRMASync)
		t.mustFail("Lock of what is locked", w.Lock(mpi.Shared, t.other(), 0), mpi.ErrRMASync)
		t.mustFail("LockAll beside a lock", w.LockAll(0), mpi.ErrRMASync)
		t.mustFail("Unlock of another", w.Unlock(t.Rank()), mpi.ErrRMASync)
		w.put(data(t.Rank(), 8), t.other(), 0)
		w.unlock(t.other())
		w.expectOwnAfterBarrier("the window", 0, data(t.other(), 8))
		w.lockAll()
		t.mustFail("LockAll twice", w.LockAll(0), mpi.ErrRMASync)
		t.mustFail("Lock under LockAll", w.Lock(mpi.Shared, t.other(), 0), mpi.ErrRMASync)
		t.mustFail("Unlock after LockAll", w.Unlock(t.other()), mpi.ErrRMASync)
		w.unlockAll()
		w.post()
		t.mustFail("Post twice", w.Post(nil, 0), mpi.ErrRMASync)
		w.wait()
		w.start()
		t.mustFail("Start twice", w.Start(nil, 0), mpi.ErrRMASync)
		w.complete()
	},
}, {
	ID: "mpi/rma-error/overlapping-epochs", Cite: rule("mpi/11.5/3"),
	Title:   "Epochs of one rank on a window do not overlap, and Free is not within one",
	Sends:   "in each kind of epoch, the calls that begin one of another kind, and Free; a lock after a fence without operations",
	Expects: "ErrRMASync of each; the epochs, and the lock, work",
	Defects: []string{"EpochsUnchecked", "FencesOverlap"}, Run: func(t *T) {
		w := t.window(16)
		calls := map[string]func() error{
			"Lock":    func() error { return w.Lock(mpi.Shared, t.other(), 0) },
			"LockAll": func() error { return w.LockAll(0) },
			"Start":   func() error { return w.Start(nil, 0) },
			"Post":    func() error { return w.Post(nil, 0) },
			"Fence":   func() error { return w.Fence(0) },
			"Free":    w.Free,
		}
		refused := func(epoch string, names ...string) {
			for _, name := range names {
				t.mustFail(name+" in an epoch of "+epoch, calls[name](), mpi.ErrRMASync)
			}
		}
		w.lock(mpi.Shared, t.other())
		refused("Lock", "LockAll", "Start", "Fence", "Free")
		w.unlock(t.other())
		w.lockAll()
		refused("LockAll", "Lock", "Start", "Fence", "Free")
		w.unlockAll()
		w.start()
		refused("Start", "Lock", "LockAll", "Fence", "Free")
		w.complete()
		w.post()
		refused("Post", "Fence", "Free")
		w.wait()
		w.fence(0)
		w.put(data(t.Rank(), 8), t.other(), 0)
		refused("Fence", "Lock", "LockAll", "Start", "Post", "Free")
		w.fence(0)
		w.lockedPut(data(2+t.Rank(), 8), t.other(), 8)
		w.expectOwnAfterBarrier("the window", 0, append(data(t.other(), 8), data(2+t.other(), 8)...))
	},
}, {
	ID: "mpi/rma-error/no-rank", Cite: rule("mpi/8.4/1"),
	Title:   "Targets that are no rank are errors",
	Sends:   "Put, Get, Accumulate and Lock with the ranks 2 and -17, and with AnySource",
	Expects: "ErrRank; the window works",
	Defects: []string{"RanksUnchecked", "ErrorWedges"}, Run: func(t *T) {
		w := t.window(8)
		for _, k := range []int{2, -17, mpi.AnySource} {
			t.mustFail("Lock", w.Lock(mpi.Shared, k, 0), mpi.ErrRank)
		}
		w.lockAll()
		for _, k := range []int{2, -17, mpi.AnySource} {
			t.mustFail("Put", w.Put(word(1), k, 0), mpi.ErrRank)
			t.mustFail("Get", w.Get(word(1), k, 0), mpi.ErrRank)
			t.mustFail("Accumulate", w.Accumulate(word(1), k, 0, mpi.Uint64, mpi.Sum), mpi.ErrRank)
		}
		w.put(data(t.Rank(), 8), t.other(), 0)
		w.unlockAll()
		w.expectOwnAfterBarrier("the window", 0, data(t.other(), 8))
	},
}, {
	ID: "mpi/rma-error/operands", Cite: rule("mpi/11.3.4/6"),
	Title:   "Types and operations that do not fit are errors",
	Sends:   "types and operations that are none, bits and truth of floats, parts of elements, an offset between elements, a result of another length",
	Expects: "ErrType, ErrOp, or another error where the standard names no class; the window as it was",
	Defects: []string{"ReductionsUnchecked", "ErrorWedges"}, Run: func(t *T) {
		w := t.window(64)
		w.lockAll()
		b := make([]byte, 16)
		for _, none := range []mpi.Type{mpi.Float64Loc + 1, 99} {
			t.mustFail("Accumulate of a type that is none", w.Accumulate(b, t.other(), 0, none, mpi.Sum), mpi.ErrType)
		}
		for _, none := range []mpi.Op{mpi.NoOp + 1, 99} {
			t.mustFail("Accumulate by an operation that is none", w.Accumulate(b, t.other(), 0, mpi.Uint64, none), mpi.ErrOp)
		}
		for _, op := range []mpi.Op{mpi.BAnd, mpi.BOr, mpi.BXor, mpi.LAnd, mpi.LOr, mpi.LXor} {
			t.mustFail("Accumulate of the bits of floats", w.Accumulate(b, t.other(), 0, mpi.Float32, op), mpi.ErrOp)
			t.mustFail("Accumulate of the bits of floats", w.Accumulate(b, t.other(), 0, mpi.Float64, op), mpi.ErrOp)
		}
		for what, err := range map[string]error{
			"Accumulate of one and a half elements": w.Accumulate(b[:12], t.other(), 0, mpi.Uint64, mpi.Sum),
			"Accumulate between elements":           w.Accumulate(b, t.other(), 4, mpi.Uint64, mpi.Sum),
			"GetAccumulate with a short result":     w.GetAccumulate(b, make([]byte, 8), t.other(), 0, mpi.Uint64, mpi.Sum),
			"CompareAndSwap between elements":       w.CompareAndSwap(word(1), word(0), make([]byte, 8), t.other(), 4, mpi.Uint64),
			"CompareAndSwap of two elements":        w.CompareAndSwap(b, word(0), make([]byte, 8), t.other(), 0, mpi.Uint64),
			"CompareAndSwap with two to compare":    w.CompareAndSwap(word(1), b, make([]byte, 8), t.other(), 0, mpi.Uint64),
			"CompareAndSwap with a short result":    w.CompareAndSwap(word(1), word(0), make([]byte, 4), t.other(), 0, mpi.Uint64),
		} {
			t.check(err != nil, "an error of "+what, "none")
		}
		w.put(data(t.Rank(), 8), t.other(), 8)
		w.unlockAll()
		w.expectOwnAfterBarrier("the window", 0, append(make([]byte, 8), data(t.other(), 8)...))
	},
}}
