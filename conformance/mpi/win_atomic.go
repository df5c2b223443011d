package mpi

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

var atomicCases = []Case{{
	ID: "mpi/atomic/tickets", Cite: rule("mpi/11.7.1/1", "mpi/11.3.4/4"), Setup: ranks(4),
	Title:   "FetchAndOp hands out every number once",
	Sends:   "all ranks draw 30 tickets from a counter of rank 1, and tell rank 0 theirs",
	Expects: "0 to 119, each once; rising for each rank",
	Defects: []string{"AccumulatesRace", "FetchesNew"}, Run: func(t *T) {
		const each = 30
		w := t.window(16)
		mine := make([]byte, 0, 8*each)
		last := int64(-1)
		w.lockAll()
		for range each {
			v := w.fetch(1, 1, 8, mpi.Sum)
			t.check(int64(v) > last, "rising tickets", "%d after %d", v, last)
			last = int64(v)
			mine = append(mine, word(v)...)
		}
		w.unlockAll()
		all := make([]byte, len(mine)*4)
		t.must("Allgather", t.Allgather(mine, all))
		seen := make([]bool, 4*each)
		for at := 0; at < len(all); at += 8 {
			v := number(all[at:])
			t.check(v < 4*each && !seen[v], "tickets below 120, each once", "%d again, or too much", v)
			seen[v] = true
		}
	},
}, {
	ID: "mpi/atomic/fetch-operations", Cite: rule("mpi/11.3.4/4"),
	Title:   "FetchAndOp brings what was there, and does its operation",
	Sends:   "Sum, BXor, Replace, NoOp and Min on a word of the other rank, one after the other",
	Expects: "before each, the result of the one before",
	Defects: []string{"FetchesNew", "ReducesBySum", "NoOpWrites", "AccumulatesReplace"}, Run: func(t *T) {
		w := t.window(8)
		w.lockAll()
		for _, s := range []struct {
			op           mpi.Op
			with, before uint64
		}{
			{mpi.Sum, 5, 0},
			{mpi.BXor, 0xf0, 5},
			{mpi.Replace, 1000, 0xf5},
			{mpi.NoOp, 3, 1000},
			{mpi.Min, 600, 1000},
			{mpi.Min, 700, 600},
			{mpi.NoOp, 0, 600},
		} {
			got := w.fetch(s.with, t.other(), 0, s.op)
			t.check(got == s.before, fmt.Sprintf("%d before operation %v", s.before, s.op), "%d", got)
		}
		w.unlockAll()
	},
}, {
	ID: "mpi/atomic/compare-and-swap", Cite: rule("mpi/11.3.4/5"),
	Title:   "CompareAndSwap changes the word only if it is as expected, and brings what was there either way",
	Sends:   "swaps that expect the right and the wrong word",
	Expects: "a change by the former only, the word of before of both",
	Defects: []string{"AlwaysSwaps", "NeverSwaps", "SwapsUnequal", "FetchesNew"}, Run: func(t *T) {
		w := t.window(24)
		w.initOwn(8, word(50))
		w.lock(mpi.Shared, t.other())
		for i, s := range []struct{ compare, with, before uint64 }{
			{49, 1, 50}, {50, 60, 50}, {50, 2, 60}, {60, 1 << 63, 60}, {1 << 63, 0, 1 << 63}, {5, 3, 0}, {0, 9, 0},
		} {
			got := w.swap(s.compare, s.with, t.other(), 8)
			t.check(got == s.before, fmt.Sprintf("%d before swap %d", s.before, i), "%d", got)
		}
		w.unlock(t.other())
		w.expectOwnAfterBarrier("the words", 0, words(0, 9, 0))
	},
}, {
	ID: "mpi/atomic/compare-and-swap-narrow", Cite: rule("mpi/11.3.4/5"),
	Title:   "CompareAndSwap fits narrow types, and leaves their neighbours alone",
	Sends:   "swaps of four bytes and of one byte in the middle of others",
	Expects: "these changed, nothing else",
	Defects: []string{"AlwaysSwaps", "NeverSwaps", "SwapsUnequal"}, Run: func(t *T) {
		w := t.window(16)
		w.initOwn(0, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
		w.lock(mpi.Exclusive, t.other())
		old := make([]byte, 4)
		t.must("CompareAndSwap", w.CompareAndSwap([]byte{0xa, 0xb, 0xc, 0xd}, []byte{5, 6, 7, 8}, old, t.other(), 4, mpi.Uint32))
		w.flush(t.other())
		t.expectEqual("the old value", old, []byte{5, 6, 7, 8})
		t.must("CompareAndSwap", w.CompareAndSwap([]byte{1, 1, 1, 1}, []byte{9, 9, 9, 9}, old, t.other(), 8, mpi.Int32))
		w.flush(t.other())
		t.expectEqual("the old value", old, []byte{9, 10, 11, 12})
		t.must("CompareAndSwap", w.CompareAndSwap([]byte{0xee}, []byte{14}, old[:1], t.other(), 13, mpi.Byte))
		w.flush(t.other())
		t.expectEqual("the old value", old[:1], []byte{14})
		w.unlock(t.other())
		w.expectOwnAfterBarrier("the window", 0, []byte{1, 2, 3, 4, 0xa, 0xb, 0xc, 0xd, 9, 10, 11, 12, 13, 0xee, 15, 16})
	},
}, {
	ID: "mpi/atomic/compare-and-swap-beside-others", Cite: rule("mpi/11.3.4/5", "mpi/11.7.1/1"), Setup: ranks(4),
	Title:   "CompareAndSwap of narrow types compares its own bytes only, while others change those beside it",
	Sends:   "each rank counts its own byte of one word of rank 0 up to 20 by swaps",
	Expects: "the byte as it left it, before each swap; all at 20",
	Defects: []string{"NeighboursRace"}, Run: func(t *T) {
		w := t.window(8)
		w.lockAll()
		old := make([]byte, 1)
		for i := range byte(20) {
			t.must("CompareAndSwap", w.CompareAndSwap([]byte{i + 1}, []byte{i}, old, 0, 2*t.Rank(), mpi.Byte))
			w.flush(0)
			t.expectEqual("the old byte", old, []byte{i})
		}
		w.unlockAll()
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the bytes", 0, []byte{20, 0, 20, 0, 20, 0, 20, 0}) })
	},
}, {
	ID: "mpi/atomic/spin-lock", Cite: rule("mpi/11.7.1/1", "mpi/11.3.4/5"), Setup: ranks(3),
	Title:   "A lock made of CompareAndSwap keeps others out",
	Sends:   "all ranks take a lock word by swaps, add 1 to a number by Get and Put, and give it back",
	Expects: "that nothing is lost",
	Defects: []string{"AccumulatesRace", "AlwaysSwaps"}, Run: func(t *T) {
		const each = 8
		me := uint64(t.Rank() + 1)
		w := t.window(16)
		w.lockAll()
		for range each {
			t.waitUntil("the lock word is free", func() bool { return w.swap(0, me, 0, 0) == 0 })
			v := w.getWord(0, 8)
			t.w.Compute(2 * time.Microsecond)
			w.flushedPut(word(v+1), 0, 8)
			was := w.swap(me, 0, 0, 0)
			t.check(was == me, "the lock word of whoever holds it", "%d of rank %d", was, me-1)
		}
		w.unlockAll()
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the number", 8, word(3*each)) })
	},
}, {
	ID: "mpi/atomic/mixed", Cite: rule("mpi/11.7.1/1"), Setup: ranks(4),
	Title:   "Atomic operations of different kinds on one word see each other",
	Sends:   "two ranks add by FetchAndOp, one by Accumulate, one by CompareAndSwap in a loop, on one word",
	Expects: "the sum of all",
	Defects: []string{"AccumulatesRace"}, Run: func(t *T) {
		const each = 20
		w := t.window(8)
		w.lock(mpi.Shared, 0)
		for range each {
			switch t.Rank() {
			case 0, 1:
				w.fetch(1, 0, 0, mpi.Sum)
			case 2:
				w.accumulate(word(1), 0, 0, mpi.Uint64, mpi.Sum)
				w.flush(0)
			case 3:
				seen := w.fetch(0, 0, 0, mpi.NoOp)
				t.waitUntil("a swap succeeds", func() bool {
					was := w.swap(seen, seen+1, 0, 0)
					done := was == seen
					seen = was
					return done
				})
			}
		}
		w.unlock(0)
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the sum", 0, word(4*each)) })
	},
}, {
	ID: "mpi/atomic/own-word", Cite: rule("mpi/11.7.1/1"), Setup: ranks(3),
	Title:   "Atomic operations on one's own window are atomic with those of others",
	Sends:   "every rank adds to a word of every rank, its own too, by Accumulate and FetchAndOp",
	Expects: "the sums",
	Defects: []string{"AccumulatesRace", "AccumulatesReplace"}, Run: func(t *T) {
		const each = 15
		w := t.window(16)
		w.lockAll()
		for range each {
			for k := range 3 {
				w.accumulate(word(2), k, 0, mpi.Uint64, mpi.Sum)
				w.fetch(3, k, 8, mpi.Sum)
			}
		}
		w.unlockAll()
		w.expectOwnAfterBarrier("the sums", 0, words(2*3*each, 3*3*each))
	},
}}
