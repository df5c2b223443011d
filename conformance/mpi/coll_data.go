package mpi

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

var collectiveCases = []Case{{
	ID: "mpi/bcast/from-every-root", Cite: rule("mpi/5.4/1"), Setup: ranks(5),
	Title:   "Bcast brings the root's data to all, whoever is the root, at any size",
	Sends:   "each rank as the root, sizes from 0 to large",
	Expects: "the root's data on all ranks",
	Defects: []string{"RootIsZero", "CollectivesCut"}, Run: func(t *T) {
		for root := range t.Size() {
			for i, n := range []int{0, 1, 8, 1000, 9000, largeSize} {
				b := newGuardedBuf(n)
				if t.Rank() == root {
					copy(b.buf, data(10*root+i, n))
				}
				t.must("Bcast", t.Bcast(b.buf, root))
				t.expectBuffer("the data of the root", b, data(10*root+i, n))
			}
		}
	},
}, {
	ID: "mpi/bcast/one-behind-the-other", Cite: rule("mpi/5.13/1"), Setup: ranks(4),
	Title:   "Broadcasts that follow each other are not mixed",
	Sends:   "100 broadcasts with changing roots and contents, without a barrier",
	Expects: "the data of each",
	Defects: []string{"BcastGuesses", "RootIsZero"}, Run: func(t *T) {
		for i := range 100 {
			root := i * 3 % t.Size()
			b := data(999, 40)
			if t.Rank() == root {
				b = data(i, 40)
			}
			t.must("Bcast", t.Bcast(b, root))
			t.expectEqual("the data of the root", b, data(i, 40))
		}
	},
}, {
	ID: "mpi/bcast/not-before-the-root", Cite: rule("mpi/5.4/1"), Setup: ranks(3),
	Title:   "A rank has the root's data only when the root has given it",
	Sends:   "the root comes late, with data that it gets from another rank only then",
	Expects: "that data",
	Defects: []string{"BcastGuesses"}, Run: func(t *T) {
		b := data(77, 16)
		switch t.Rank() {
		case 0:
			t.send(data(5, 16), 1, 1)
		case 1:
			t.idle()
			b = make([]byte, 16)
			result(t.Recv(b, 0, 1))(t, "Recv")
		}
		t.must("Bcast", t.Bcast(b, 1))
		t.expectEqual("the data of the root", b, data(5, 16))
	},
}, {
	ID: "mpi/allreduce/operations", Cite: rule("mpi/5.9.2/1", "mpi/5.9.6/1"), Setup: ranks(5),
	Title:   "Allreduce combines integers by each operation, in separate buffers and in place",
	Sends:   "every operation on three unsigned numbers a rank",
	Expects: "what the operation gives by hand, and an unchanged send buffer",
	Defects: []string{"ReducesBySum", "ReduceMissesLast", "ReduceChangesInput"}, Run: func(t *T) {
		in := func(rank int) []uint64 { return []uint64{uint64(3 + 2*rank), uint64(rank & 1), 0xff00ff ^ 1<<rank} }
		for _, op := range slices.Sorted(maps.Keys(operations)) { // all ranks in one order
			f := operations[op]
			want := in(0)
			for k := 1; k < t.Size(); k++ {
				for i, v := range in(k) {
					want[i] = f(want[i], v)
				}
			}
			b := words(in(t.Rank())...)
			result := make([]byte, len(b))
			t.must("Allreduce", t.Allreduce(b, result, mpi.Uint64, op))
			t.expectEqual(fmt.Sprintf("the result of operation %v", op), result, words(want...))
			t.expectEqual("the send buffer", b, words(in(t.Rank())...))
			t.must("Allreduce", t.Allreduce(mpi.InPlace, b, mpi.Uint64, op))
			t.expectEqual(fmt.Sprintf("the result of operation %v in place", op), b, words(want...))
		}
	},
}, {
	ID: "mpi/allreduce/types", Cite: rule("mpi/5.9.2/2"), Setup: ranks(3),
	Title:   "Allreduce knows the types: widths, signs and floats",
	Sends:   "sums, minima and maxima of each type, with negative numbers, carries and fractions",
	Expects: "what the type gives by hand",
	Defects: []string{"TypesIgnored", "ReducesBySum"}, Run: func(t *T) {
		r := t.Rank()
		for _, c := range typed {
			b := c.in(r)
			t.must("Allreduce", t.Allreduce(mpi.InPlace, b, c.t, c.op))
			t.expectEqual(fmt.Sprintf("the result of %v by %v", c.t, c.op), b, c.want)
		}
	},
}, {
	ID: "mpi/allreduce/long", Cite: rule("mpi/5.9.6/1"), Setup: ranks(4),
	Title:   "Allreduce combines long vectors element by element",
	Sends:   "sums of 1 to 20000 numbers",
	Expects: "every sum",
	Defects: []string{"CollectivesCut", "ReduceMissesLast"}, Run: func(t *T) {
		for _, n := range []int{1, 2, 100, 1000, 20_000} {
			b := make([]byte, 0, 8*n)
			want := make([]byte, 0, 8*n)
			for i := range n {
				b = append(b, word(uint64(i*(t.Rank()+1)))...)
				want = append(want, word(uint64(10*i))...)
			}
			t.must("Allreduce", t.Allreduce(mpi.InPlace, b, mpi.Uint64, mpi.Sum))
			t.expectEqual("the sums", b, want)
		}
	},
}, {
	ID: "mpi/allreduce/same-on-all", Cite: rule("mpi/5.9.6/2"), Setup: ranks(5),
	Title:   "All ranks have the same result, to the last bit",
	Sends:   "sums of fractions whose order of adding shows, compared by Allgather",
	Expects: "identical bytes on all ranks",
	Defects: []string{"ReduceDiffers"}, Run: func(t *T) {
		for i := range 10 {
			b := word(math.Float64bits(math.Pow(10, float64(t.Rank()*5-i)) / 3))
			t.must("Allreduce", t.Allreduce(mpi.InPlace, b, mpi.Float64, mpi.Sum))
			all := make([]byte, 8*t.Size())
			t.must("Allgather", t.Allgather(b, all))
			for k := range t.Size() {
				t.expectEqual("the result of another rank", all[8*k:8*k+8], b)
			}
		}
	},
}, {
	ID: "mpi/allgather/by-rank", Cite: rule("mpi/5.7/1"), Setup: ranks(5),
	Title:   "Allgather brings the data of all ranks to all, by rank",
	Sends:   "sizes from 0 to large",
	Expects: "each rank's data at its place",
	Defects: []string{"GatherReversed", "CollectivesCut"}, Run: func(t *T) {
		for i, n := range []int{0, 1, 8, 500, 9000, 70_000} {
			r := newGuardedBuf(n * t.Size())
			t.must("Allgather", t.Allgather(data(10*i+t.Rank(), n), r.buf))
			var want []byte
			for k := range t.Size() {
				want = append(want, data(10*i+k, n)...)
			}
			t.expectBuffer("the gathered data", r, want)
		}
	},
}, {
	ID: "mpi/alltoall/transposes", Cite: rule("mpi/5.8/1"), Setup: ranks(5),
	Title:   "Alltoall brings the i-th part of each rank to rank i",
	Sends:   "parts from 0 bytes to large ones",
	Expects: "each part at its place",
	Defects: []string{"NotTransposed", "CollectivesCut"}, Run: func(t *T) { alltoall(t, []int{0, 1, 8, 250, 256, 257, 1000, 9000, 70_000}) },
}, {
	ID: "mpi/alltoall/other-numbers", Cite: rule("mpi/5.8/1"), Setup: ranks(7),
	Title:   "Alltoall fits groups of any size",
	Sends:   "groups of 1, 2, 3, 4, 6 and 7 of seven ranks, parts of 8 and 1000 bytes",
	Expects: "each part at its place",
	Defects: []string{"NotTransposed", "CollectivesCut"}, Run: func(t *T) {
		for _, n := range []int{1, 2, 3, 4, 6, 7} {
			color := 0
			if t.Rank() >= n {
				color = mpi.Undefined
			}
			if c := t.split(color, 0); c != nil {
				alltoall(c, []int{8, 1000})
			}
		}
	},
}, {
	ID: "mpi/collective/all-in-a-row", Cite: rule("mpi/5.13/1"), Setup: ranks(4),
	Title:   "Collective operations of all kinds follow each other without mixing",
	Sends:   "20 rounds of Bcast, Allreduce, Allgather and Alltoall, with ranks that dawdle by turns",
	Expects: "every result",
	Defects: []string{"BcastGuesses", "ReducesBySum", "NotTransposed", "GatherReversed"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		for i := range 20 {
			if i%n == me {
				t.w.Compute(30_000)
			}
			b := data(555, 24)
			if me == i%n {
				b = data(i, 24)
			}
			t.must("Bcast", t.Bcast(b, i%n))
			t.expectEqual("the broadcast", b, data(i, 24))
			v := word(uint64(i*10 + me))
			t.must("Allreduce", t.Allreduce(mpi.InPlace, v, mpi.Uint64, mpi.Max))
			t.expectEqual("the maximum", v, word(uint64(i*10+n-1)))
			all := make([]byte, 8*n)
			t.must("Allgather", t.Allgather(word(uint64(i*100+me)), all))
			for k := range n {
				t.expectEqual("the gathered data", all[8*k:8*k+8], word(uint64(i*100+k)))
			}
			alltoall(t, []int{16})
		}
	},
}, {
	ID: "mpi/collective/beside-messages", Cite: rule("mpi/5.1/1", "mpi/5.13/1"), Setup: ranks(4),
	Title:   "Messages under way are untouched by collective operations, and the other way round",
	Sends:   "receives with wildcards and large sends under way while all ranks do barriers, reductions and broadcasts",
	Expects: "the results, and the messages",
	Defects: []string{"CollectivesShow", "ReduceMissesLast"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		p, q := t.irecv(largeSize, (me+1)%n, 3), t.irecv(8, mpi.AnySource, mpi.AnyTag)
		r := t.isend(data(me, largeSize), (me+n-1)%n, 3)
		for i := range 5 {
			v := word(uint64(me + i))
			t.must("Allreduce", t.Allreduce(mpi.InPlace, v, mpi.Uint64, mpi.Sum))
			t.expectEqual("the sum", v, word(uint64(6+4*i)))
			t.barrier()
			b := data(me, 9000)
			t.must("Bcast", t.Bcast(b, 2))
			t.expectEqual("the broadcast", b, data(2, 9000))
		}
		s := t.isend(data(20+me, 8), (me+1)%n, 5)
		t.expectStatus("the receive of anything", t.expectWait(q, data(20+(me+n-1)%n, 8)), (me+n-1)%n, 5, 8)
		t.expectWait(p, data((me+1)%n, largeSize))
		t.waitAll(r, s)
	},
}}

// alltoall runs an Alltoall for each size of a part, and ends the rank unless every part arrives.
func alltoall(t *T, sizes []int) {
	n, me := t.Size(), t.Rank()
	for i, size := range sizes {
		var out, want []byte
		for k := range n {
			id := func(from, to int) int { return 1000*i + 10*from + to } // another one for each part
			out = append(out, data(id(me, k), size)...)
			want = append(want, data(id(k, me), size)...)
		}
		r := newGuardedBuf(size * n)
		t.must("Alltoall", t.Alltoall(out, r.buf))
		t.expectBuffer("the received parts", r, want)
	}
}

// boolWord is 1 for true and 0 for false.
func boolWord(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// operations compute the reductions of unsigned numbers.
var operations = map[mpi.Op]func(a, b uint64) uint64{
	mpi.Sum:  func(a, b uint64) uint64 { return a + b },
	mpi.Prod: func(a, b uint64) uint64 { return a * b },
	mpi.Min:  func(a, b uint64) uint64 { return min(a, b) },
	mpi.Max:  func(a, b uint64) uint64 { return max(a, b) },
	mpi.BAnd: func(a, b uint64) uint64 { return a & b },
	mpi.BOr:  func(a, b uint64) uint64 { return a | b },
	mpi.BXor: func(a, b uint64) uint64 { return a ^ b },
	mpi.LAnd: func(a, b uint64) uint64 { return boolWord(a != 0 && b != 0) },
	mpi.LOr:  func(a, b uint64) uint64 { return boolWord(a != 0 || b != 0) },
	mpi.LXor: func(a, b uint64) uint64 { return boolWord((a != 0) != (b != 0)) },
}

// typed are reductions of three ranks whose results depend on the type.
var typed = []struct {
	t    mpi.Type
	op   mpi.Op
	in   func(rank int) []byte
	want []byte
}{
	{mpi.Byte, mpi.Sum, func(r int) []byte { return []byte{200, byte(r)} }, []byte{88, 3}},
	{mpi.Byte, mpi.Max, func(r int) []byte { return []byte{byte(100 + 50*r)} }, []byte{200}},
	{mpi.Int32, mpi.Min, func(r int) []byte { return le32(uint32(1 - int32(r))) }, le32(0xffffffff)},
	{mpi.Int32, mpi.Sum, func(r int) []byte { return append(le32(0xffffffff), le32(7)...) }, append(le32(0xfffffffd), le32(21)...)},
	{mpi.Uint32, mpi.Min, func(r int) []byte { return le32(uint32(1 - int32(r))) }, le32(0)},
	{mpi.Uint32, mpi.Max, func(r int) []byte { return le32(0x70000000 * uint32(r)) }, le32(0xe0000000)},
	{mpi.Int64, mpi.Max, func(r int) []byte { return word(uint64(-int64(r) - 1)) }, word(1<<64 - 1)},
	{mpi.Int64, mpi.Min, func(r int) []byte { return word(uint64(int64(r)*2 - 3)) }, word(uint64(1<<64 - 3))},
	{mpi.Uint64, mpi.Sum, func(r int) []byte { return word(0xff) }, word(0x2fd)},
	{mpi.Float32, mpi.Sum, func(r int) []byte { return le32(math.Float32bits(0.5 + float32(r))) }, le32(math.Float32bits(4.5))},
	{mpi.Float32, mpi.Min, func(r int) []byte { return le32(math.Float32bits(-1.5 * float32(r))) }, le32(math.Float32bits(-3))},
	{mpi.Float64, mpi.Prod, func(r int) []byte { return word(math.Float64bits(1.5 + float64(r))) }, word(math.Float64bits(13.125))},
	{mpi.Float64, mpi.Max, func(r int) []byte { return word(math.Float64bits(-1 - float64(r))) }, word(math.Float64bits(-1))},
	{mpi.Byte, mpi.Min, func(r int) []byte { return []byte{byte(200 - 50*r)} }, []byte{100}},
	{mpi.Byte, mpi.Prod, func(r int) []byte { return []byte{20} }, []byte{64}},
	{mpi.Byte, mpi.LXor, func(r int) []byte { return []byte{byte(r), 4, byte(r / 2)} }, []byte{0, 1, 1}},
	{mpi.Int32, mpi.Max, func(r int) []byte { return le32(uint32(int32(r) - 3)) }, le32(0xffffffff)},
	{mpi.Int32, mpi.Prod, func(r int) []byte { return le32(uint32(-2 - int32(r))) }, le32(uint32(0xffffffe8))},
	{mpi.Int32, mpi.LAnd, func(r int) []byte { return append(le32(uint32(r)), le32(8)...) }, append(le32(0), le32(1)...)},
	{mpi.Uint32, mpi.Sum, func(r int) []byte { return append(le32(0xf0000000), le32(1)...) }, append(le32(0xd0000000), le32(3)...)},
	{mpi.Uint32, mpi.Prod, func(r int) []byte { return append(le32(0x10000+uint32(r)), le32(1)...) }, append(le32(0x20000), le32(1)...)},
	{mpi.Uint32, mpi.BXor, func(r int) []byte { return le32(5 << r) }, le32(0b11011)},
	{mpi.Int64, mpi.Sum, func(r int) []byte { return word(uint64(int64(r) - 5)) }, word(uint64(1<<64 - 12))},
	{mpi.Int64, mpi.Prod, func(r int) []byte { return word(uint64(-3 - int64(r))) }, word(uint64(1<<64 - 60))},
	{mpi.Uint64, mpi.Min, func(r int) []byte { return word(1<<63 + uint64(r) - 1) }, word(1<<63 - 1)},
	{mpi.Uint64, mpi.Max, func(r int) []byte { return word(1<<63 + uint64(r) - 1) }, word(1<<63 + 1)},
	{mpi.Float32, mpi.Prod, func(r int) []byte { return le32(math.Float32bits(-0.5 - float32(r))) }, le32(math.Float32bits(-1.875))},
	{mpi.Float32, mpi.Max, func(r int) []byte { return le32(math.Float32bits(-1.5 * float32(r+1))) }, le32(math.Float32bits(-1.5))},
	{mpi.Float64, mpi.Sum, func(r int) []byte { return word(math.Float64bits(0.25 - float64(r))) }, word(math.Float64bits(-2.25))},
	{mpi.Float64, mpi.Min, func(r int) []byte { return word(math.Float64bits(2 - 1.5*float64(r))) }, word(math.Float64bits(-1))},
}

// le32 encodes a number in four bytes, little-endian.
func le32(v uint32) []byte { return word(uint64(v))[:4] }
