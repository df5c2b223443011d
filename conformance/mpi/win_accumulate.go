package mpi

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/mpi"
)

var accumulateCases = []Case{{
	ID: "mpi/accumulate/operations", Cite: rule("mpi/11.3.4/1"),
	Title:   "Accumulate combines by each operation, Replace included",
	Sends:   "every operation of integers on a vector of the other rank",
	Expects: "what the operation gives by hand",
	Defects: []string{"AccumulatesReplace", "ReducesBySum"}, Run: func(t *T) {
		there, with := []uint64{12, 0, 7, 1 << 40}, []uint64{10, 5, 0, 3}
		w := t.window(8 * len(there))
		ops := []mpi.Op{mpi.Sum, mpi.Prod, mpi.Min, mpi.Max, mpi.BAnd, mpi.BOr, mpi.BXor, mpi.LAnd, mpi.LOr, mpi.LXor, mpi.Replace}
		for _, op := range ops {
			copy(w.Memory(), words(there...))
			w.fence(0)
			w.accumulate(words(with...), t.other(), 0, mpi.Uint64, op)
			w.fence(0)
			want := with
			if f := operations[op]; f != nil {
				want = nil
				for i := range there {
					want = append(want, f(there[i], with[i]))
				}
			}
			t.expectEqual(fmt.Sprintf("the window after operation %v", op), w.Memory(), words(want...))
			w.fence(0)
		}
	},
}, {
	ID: "mpi/accumulate/types", Cite: rule("mpi/11.3.4/1"), Setup: ranks(3),
	Title:   "Accumulate knows the types: widths, signs and floats",
	Sends:   "sums, minima and maxima of each type onto the window of rank 0",
	Expects: "what the type gives by hand",
	Defects: []string{"TypesIgnored", "ReducesBySum", "AccumulatesReplace"}, Run: func(t *T) {
		w := t.window(16)
		for _, c := range typed {
			b := c.in(t.Rank())
			t.onRank(0, func() { copy(w.Memory(), b) })
			w.fence(0)
			if t.Rank() > 0 {
				w.accumulate(b, 0, 0, c.t, c.op)
			}
			w.fence(0)
			t.onRank(0, func() {
				t.expectEqual(fmt.Sprintf("the result of %v by %v", c.t, c.op), w.Memory()[:len(c.want)], c.want)
			})
			w.fence(0)
		}
	},
}, {
	ID: "mpi/accumulate/concurrent", Cite: rule("mpi/11.7.1/1"), Setup: ranks(5),
	Title:   "Accumulates of many ranks at the same place all count",
	Sends:   "all ranks add to the same numbers of rank 0 under shared locks, 30 times",
	Expects: "the sums",
	Defects: []string{"AccumulatesRace"}, Run: func(t *T) {
		w := t.window(64)
		w.lock(mpi.Shared, 0)
		v := uint64(t.Rank() + 1)
		for range 30 {
			w.accumulate(words(1, v, v*v, 1, 1, 1, 1, 100), 0, 0, mpi.Uint64, mpi.Sum)
		}
		w.unlock(0)
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the sums", 0, words(150, 450, 1650, 150, 150, 150, 150, 15_000)) })
	},
}, {
	ID: "mpi/accumulate/concurrent-narrow", Cite: rule("mpi/11.7.1/1"), Setup: ranks(4),
	Title:   "Accumulates of narrow types beside each other do not harm their neighbours",
	Sends:   "each rank adds to its own 4 bytes, and to its own byte, of two words of rank 0",
	Expects: "all sums",
	Defects: []string{"NeighboursRace"}, Run: func(t *T) {
		w := t.window(24)
		w.lock(mpi.Shared, 0)
		for range 30 {
			w.accumulate(le32(uint32(t.Rank()+1)), 0, 4*t.Rank(), mpi.Uint32, mpi.Sum)
			w.accumulate([]byte{byte(t.Rank() + 1)}, 0, 16+t.Rank(), mpi.Byte, mpi.Sum)
		}
		w.unlock(0)
		t.barrier()
		t.onRank(0, func() {
			want := bytes.Join([][]byte{le32(30), le32(60), le32(90), le32(120), {30, 60, 90, 120, 0, 0, 0, 0}}, nil)
			w.expectOwn("the sums", 0, want)
		})
	},
}, {
	ID: "mpi/accumulate/in-order", Cite: rule("mpi/11.7.2/1"), Setup: ranks(3),
	Title:   "Accumulates of one rank at one place are done in its order",
	Sends:   "Replace by 1 to 40 without a flush, by each rank at its own place; Replace and Sum by turns",
	Expects: "the last number; the result of doing one after the other",
	Defects: []string{"AccumulatesUnordered"}, Run: func(t *T) {
		w := t.window(48)
		w.lock(mpi.Shared, 0)
		at := 16 * t.Rank()
		want := uint64(0)
		for i := range 40 {
			w.accumulate(word(uint64(i+1)), 0, at, mpi.Uint64, mpi.Replace)
			op, v := mpi.Sum, uint64(i)
			if i%3 == 0 {
				op = mpi.Replace
				want = 0
			}
			want += v
			w.accumulate(word(v), 0, at+8, mpi.Uint64, op)
		}
		w.unlock(0)
		t.barrier()
		w.expectGet("the numbers", words(40, want), 0, at)
	},
}, {
	ID: "mpi/accumulate/overlapping", Cite: rule("mpi/11.7.2/1", "mpi/11.3.4/2"), Setup: ranks(3),
	Title:   "Accumulates of one rank on parts that overlap are done in its order, with the results of that order",
	Sends:   "by each rank in its own part, sums, Replace and Max of bytes on ranges drawn at random, half of them fetching, without a flush",
	Expects: "the bytes and the results of doing one after the other",
	Defects: []string{"AccumulatesUnordered", "FetchesNew"}, Run: func(t *T) {
		const part = 40
		rng := rand.New(rand.NewPCG(1, uint64(t.Rank())))
		w := t.window(3 * part)
		there := make([]byte, part)
		var got, want [][]byte
		w.lock(mpi.Shared, 0)
		for i := range 50 {
			from := rng.IntN(part)
			d := data(i, 1+rng.IntN(part-from))
			op := []mpi.Op{mpi.Sum, mpi.Replace, mpi.Max}[rng.IntN(3)]
			at := part*t.Rank() + from
			if i%2 == 0 {
				w.accumulate(d, 0, at, mpi.Byte, op)
			} else {
				r := make([]byte, len(d))
				t.must("GetAccumulate", w.GetAccumulate(d, r, 0, at, mpi.Byte, op))
				got, want = append(got, r), append(want, bytes.Clone(there[from:from+len(d)]))
			}
			for k, b := range d {
				switch was := there[from+k]; op {
				case mpi.Sum:
					there[from+k] = was + b
				case mpi.Max:
					there[from+k] = max(was, b)
				default:
					there[from+k] = b
				}
			}
		}
		w.unlock(0)
		for i := range got {
			t.expectEqual(fmt.Sprintf("result %d", i), got[i], want[i])
		}
		w.expectGet("the bytes", there, 0, part*t.Rank())
	},
}, {
	ID: "mpi/accumulate/elements-whole", Cite: rule("mpi/11.7.1/1"), Setup: ranks(4),
	Title:   "Elements are replaced whole: each is of one writer or of another",
	Sends:   "three ranks replace eight numbers by ones with equal halves, at the same time; the fourth reads atomically",
	Expects: "halves that are always equal",
	Defects: []string{"ElementsTorn"}, Run: func(t *T) {
		w := t.window(64)
		w.lock(mpi.Shared, 0)
		for i := range 25 {
			v := uint64(t.Rank()*100 + i)
			mine := words(v<<32|v, v<<32|v, v<<32|v, v<<32|v, v<<32|v, v<<32|v, v<<32|v, v<<32|v)
			if t.Rank() < 3 {
				w.accumulate(mine, 0, 0, mpi.Uint64, mpi.Replace)
				w.flush(0)
				continue
			}
			got := make([]byte, 64)
			t.must("GetAccumulate", w.GetAccumulate(nil, got, 0, 0, mpi.Uint64, mpi.NoOp))
			w.flush(0)
			for at := 0; at < 64; at += 8 {
				v := number(got[at:])
				t.check(v>>32 == v&0xffffffff, "numbers that were written whole", "%#x", v)
			}
		}
		w.unlock(0)
	},
}, {
	ID: "mpi/accumulate/fetches", Cite: rule("mpi/11.3.4/2"),
	Title:   "GetAccumulate brings what was there before, of every element",
	Sends:   "sums, Replace and Max on a vector, one after the other; Replace of longer ones around 1 KiB",
	Expects: "before and after, by hand",
	Defects: []string{"FetchesNew", "AccumulatesReplace"}, Run: func(t *T) {
		const room = 9000
		w := t.window(24 + room)
		w.initOwn(0, append(words(1, 2, 3), data(t.Rank(), room)...))
		do := func(op mpi.Op, with, before []uint64) {
			r := newGuardedBuf(24)
			w.lock(mpi.Exclusive, t.other())
			t.must("GetAccumulate", w.GetAccumulate(words(with...), r.buf, t.other(), 0, mpi.Uint64, op))
			w.unlock(t.other())
			t.expectBuffer(fmt.Sprintf("the content before operation %v", op), r, words(before...))
		}
		do(mpi.Sum, []uint64{10, 20, 30}, []uint64{1, 2, 3})
		do(mpi.Replace, []uint64{7, 50, 9}, []uint64{11, 22, 33})
		do(mpi.Max, []uint64{8, 8, 8}, []uint64{7, 50, 9})
		do(mpi.Sum, []uint64{0, 0, 0}, []uint64{8, 50, 9})
		there := bytes.Clone(data(t.other(), room))
		for i, n := range []int{1016, 1024, 1032, room} {
			r := newGuardedBuf(n)
			w.lock(mpi.Exclusive, t.other())
			t.must("GetAccumulate", w.GetAccumulate(data(10+i, n), r.buf, t.other(), 24, mpi.Uint64, mpi.Replace))
			w.unlock(t.other())
			t.expectBuffer("the content before", r, there[:n])
			copy(there, data(10+i, n))
		}
		w.expectOwnAfterBarrier("the window", 0, words(8, 50, 9))
	},
}, {
	ID: "mpi/accumulate/reads-only", Cite: rule("mpi/11.3.4/3"),
	Title:   "GetAccumulate by NoOp reads, and changes nothing",
	Sends:   "NoOp with an operand that must not count",
	Expects: "the content, twice",
	Defects: []string{"NoOpWrites", "FlushEarly"}, Run: func(t *T) {
		w := t.window(32)
		w.initOwn(0, data(t.Rank(), 32))
		w.lock(mpi.Shared, t.other())
		for range 2 {
			r := newGuardedBuf(32)
			t.must("GetAccumulate", w.GetAccumulate(data(77, 32), r.buf, t.other(), 0, mpi.Uint64, mpi.NoOp))
			w.flush(t.other())
			t.expectBuffer("the data of the read", r, data(t.other(), 32))
		}
		w.unlock(t.other())
		w.expectOwnAfterBarrier("the window", 0, data(t.Rank(), 32))
	},
}, {
	ID: "mpi/accumulate/long", Cite: rule("mpi/11.3.4/1"), Setup: ranks(3),
	Title:   "Accumulates of many elements are done to all of them",
	Sends:   "all ranks add 3000 numbers each to each rank, between fences",
	Expects: "every sum",
	Defects: []string{"AccumulatesReplace", "TypesIgnored", "FenceEarly"}, Run: func(t *T) {
		const n = 3000
		w := t.window(8 * n)
		mine := make([]byte, 0, 8*n)
		want := make([]byte, 0, 8*n)
		for i := range n {
			mine = append(mine, word(uint64(i*(t.Rank()+1)+200))...)
			want = append(want, word(uint64(6*i+600))...)
		}
		w.fence(0)
		for k := range 3 {
			w.accumulate(mine, k, 0, mpi.Uint64, mpi.Sum)
		}
		w.fence(0)
		t.expectEqual("the sums", w.Memory(), want)
	},
}}
