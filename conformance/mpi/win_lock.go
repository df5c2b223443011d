package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

var lockCases = []Case{{
	ID: "mpi/lock/exclusive-counts", Cite: rule("mpi/11.5.3/1"), Setup: ranks(4),
	Title:   "Read, add and write back under an exclusive lock lose nothing",
	Sends:   "every rank adds 1 to a number of rank 0 by Get, Flush and Put, 15 times",
	Expects: "60",
	Defects: []string{"LocksAlike", "UnlockEarly"}, Run: func(t *T) {
		w := t.window(8)
		for range 15 {
			w.lock(mpi.Exclusive, 0)
			v := w.getWord(0, 0)
			t.w.Compute(3 * time.Microsecond)
			w.put(word(v+1), 0, 0)
			w.unlock(0)
		}
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the number", 0, word(60)) })
	},
}, {
	ID: "mpi/lock/exclusive-is-whole", Cite: rule("mpi/11.5.3/1"), Setup: ranks(3),
	Title:   "Nobody sees what is done under an exclusive lock half done",
	Sends:   "two ranks write two distant words under exclusive locks, a third reads both under shared ones",
	Expects: "that both words are always of one writer",
	Defects: []string{"LocksAlike", "ExclusiveLetsShared"}, Run: func(t *T) {
		w := t.window(2048)
		for i := range 15 {
			if t.Rank() == 2 {
				w.lock(mpi.Shared, 0)
				a := w.getWord(0, 0)
				t.w.Compute(5 * time.Microsecond)
				b := w.getWord(0, 2040)
				w.unlock(0)
				t.check(a == b, "two words that are always written together to be the same", "%d and %d", a, b)
				continue
			}
			v := word(uint64(100*t.Rank() + i))
			w.lock(mpi.Exclusive, 0)
			w.flushedPut(v, 0, 0)
			t.w.Compute(5 * time.Microsecond)
			w.put(v, 0, 2040)
			w.unlock(0)
		}
	},
}, {
	ID: "mpi/lock/unlock-completes", Cite: rule("mpi/11.5.3/2"),
	Title:   "When Unlock returns, what was put is in the target's memory",
	Sends:   "puts of several sizes under a lock, Unlock, a message to the target, which looks",
	Expects: "the data",
	Defects: []string{"UnlockEarly", "PutsCutLarge", "PutsCut"}, Run: func(t *T) {
		w := t.window(1 << 19)
		for i, n := range []int{1, 64, 5000, 100_000, 1 << 19} {
			if t.Rank() == 0 {
				w.lockedPut(data(i, n), 1, 0)
				t.signal(1)
				t.awaitSignal(1)
			} else {
				t.awaitSignal(0)
				w.expectOwn("the data of Put", 0, data(i, n))
				t.signal(0)
			}
		}
	},
}, {
	ID: "mpi/lock/get", Cite: rule("mpi/11.5.3/2", "mpi/11.3.2/1"),
	Title:   "When Unlock returns, what was got is in the origin's buffer",
	Sends:   "a window that its rank has filled under a lock; gets of several sizes from the other",
	Expects: "the data",
	Defects: []string{"UnlockEarly", "GetsCut", "GetsNothing"}, Run: func(t *T) {
		const room = 300_000
		w := t.window(room)
		w.initOwn(0, data(t.Rank(), room))
		for i, n := range []int{1, 64, 5000, 100_000, room - 10} {
			w.expectGet("the data of Get", data(t.other(), room)[i:i+n], t.other(), i)
		}
	},
}, {
	ID: "mpi/lock/several-targets", Cite: rule("mpi/11.5.3/3"), Setup: ranks(4),
	Title:   "A rank can hold locks of several targets at once",
	Sends:   "rank 0 locks all others, puts to each, and unlocks in another order; then rank 1",
	Expects: "the data on each",
	Defects: []string{"PutsOff"}, Run: func(t *T) {
		w := t.window(64)
		for origin := range 2 {
			t.onRank(origin, func() {
				for k := range 4 {
					w.lock(mpi.Exclusive, k)
				}
				for k := range 4 {
					w.put(data(10*origin+k, 32), k, 32*origin)
				}
				for _, k := range []int{2, 0, 3, 1} {
					w.unlock(k)
				}
			})
			t.barrier()
		}
		for origin := range 2 {
			w.expectOwn("the data of Put", 32*origin, data(10*origin+t.Rank(), 32))
		}
	},
}, {
	ID: "mpi/lock/own-window", Cite: rule("mpi/11.5.3/4"), Setup: ranks(3),
	Title:   "A rank can lock its own window, for loads and stores as for operations",
	Sends:   "all ranks add to a number of rank 0 under exclusive locks; rank 0 by loads and stores, with a pause between them",
	Expects: "the sum; a put to oneself under a lock as well",
	Defects: []string{"LocksAlike", "SelfPutsLost"}, Run: func(t *T) {
		w := t.window(16)
		for range 15 {
			w.lock(mpi.Exclusive, 0)
			if t.Rank() == 0 {
				v := number(w.Memory())
				t.w.Compute(10 * time.Microsecond)
				t.idle()
				copy(w.Memory(), word(v+1))
			} else {
				w.put(word(w.getWord(0, 0)+1), 0, 0)
			}
			w.unlock(0)
		}
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the number", 0, word(45)) })
		w.lockedPut(data(t.Rank(), 8), t.Rank(), 8)
		w.expectOwn("the data of Put to oneself", 8, data(t.Rank(), 8))
	},
}, {
	ID: "mpi/lock/all-by-all", Cite: rule("mpi/11.5.3/5"), Setup: ranks(4),
	Title:   "All ranks can have all windows locked shared at the same time",
	Sends:   "LockAll on all ranks, puts to all, FlushAll, a barrier while all hold their locks, gets of everything",
	Expects: "the data; no waiting for each other's locks",
	Defects: []string{"SharedExcludes", "FlushEarly"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		w := t.window(n * 100)
		w.lockAll()
		for k := range n {
			w.put(data(10*me+k, 100), k, me*100)
		}
		t.must("FlushAll", w.FlushAll())
		t.barrier()
		next := (me + 1) % n
		var want []byte
		for k := range n {
			want = append(want, data(10*k+next, 100)...)
		}
		w.expectFlushedGet("the data of all ranks", want, next, 0)
		t.barrier()
		w.unlockAll()
	},
}, {
	ID: "mpi/lock/all-waits-for-exclusive", Cite: rule("mpi/11.5.3/1"), Setup: ranks(4),
	Title:   "Operations under LockAll wait for the holder of an exclusive lock",
	Sends:   "rank 1 locks rank 2 exclusively, and looks for a while; ranks 0 and 3 put and add under LockAll meanwhile",
	Expects: "nothing of them before rank 1 unlocks; then all of them",
	Defects: []string{"ExclusiveLetsShared", "LocksAlike"}, Run: func(t *T) {
		w := t.window(16)
		switch t.Rank() {
		case 1:
			w.lock(mpi.Exclusive, 2)
			w.flushedPut(words(7, 7), 2, 0)
			t.signal(0, 3)
			for range 3 {
				t.idle()
				w.expectFlushedGet("the locked words", words(7, 7), 2, 0)
			}
			w.unlock(2)
		case 0, 3:
			t.awaitSignal(1)
			w.lockAll()
			if t.Rank() == 0 {
				w.put(word(9), 2, 0)
			} else {
				w.accumulate(word(1), 2, 8, mpi.Uint64, mpi.Sum)
			}
			w.unlockAll()
		}
		t.barrier()
		t.onRank(2, func() { w.expectOwn("the words", 0, words(9, 8)) })
	},
}, {
	ID: "mpi/lock/again-and-again", Cite: rule("mpi/11.5.3/2"),
	Title:   "Epochs of locks follow each other, each sees what came before",
	Sends:   "100 epochs by turns of put and get on one place",
	Expects: "always what was put last",
	Defects: []string{"UnlockEarly", "GetsNothing"}, Run: func(t *T) {
		w := t.window(24)
		t.onRank(0, func() {
			for i := range 50 {
				w.lockedPut(data(i, 24), 1, 0)
				w.expectGet("the data of the last Put", data(i, 24), 1, 0)
			}
		})
	},
}, {
	ID: "mpi/lock/busy-target", Cite: rule("mpi/11.7.3/1"), Labels: background,
	Title:   "A lock and what is done under it do not need the target to call anything",
	Sends:   "the target computes for long and looks at no window; the origin puts, gets and unlocks, and looks at the time",
	Expects: "that it is through long before the target",
	Defects: []string{"NothingWhileBusy"}, Run: func(t *T) {
		const busy = time.Second // much longer than a NIC takes to repeat what was lost on the way
		w := t.window(64)
		t.barrier()
		t.onRank(1, func() { t.w.Compute(busy) })
		t.onRank(0, func() {
			began := t.w.Wtime()
			w.lockedPut(data(1, 64), 1, 0)
			w.expectGet("the data of Put", data(1, 64), 1, 0)
			took := t.w.Wtime() - began
			t.check(took < busy/2, "the epochs to end while the target computes", "%v, of %v", took, busy)
		})
	},
}}
