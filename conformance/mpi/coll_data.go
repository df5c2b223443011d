package mpi

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

var collectivePrograms = programs{
	"mpi/bcast/from-every-root": func(t *T) {
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
	"mpi/bcast/one-behind-the-other": func(t *T) {
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
	"mpi/bcast/not-before-the-root": func(t *T) {
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
	"mpi/allreduce/operations": func(t *T) {
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
			t.must("Allreduce", t.Allreduce(b, mpi.Uint64, op))
			t.expectEqual(fmt.Sprintf("the result of operation %v", op), b, words(want...))
		}
	},
	"mpi/allreduce/types": func(t *T) {
		r := t.Rank()
		for _, c := range typed {
			b := c.in(r)
			t.must("Allreduce", t.Allreduce(b, c.t, c.op))
			t.expectEqual(fmt.Sprintf("the result of %v by %v", c.t, c.op), b, c.want)
		}
	},
	"mpi/allreduce/long": func(t *T) {
		for _, n := range []int{1, 2, 100, 1000, 20_000} {
			b := make([]byte, 0, 8*n)
			want := make([]byte, 0, 8*n)
			for i := range n {
				b = append(b, word(uint64(i*(t.Rank()+1)))...)
				want = append(want, word(uint64(10*i))...)
			}
			t.must("Allreduce", t.Allreduce(b, mpi.Uint64, mpi.Sum))
			t.expectEqual("the sums", b, want)
		}
	},
	"mpi/allreduce/same-on-all": func(t *T) {
		for i := range 10 {
			b := word(math.Float64bits(math.Pow(10, float64(t.Rank()*5-i)) / 3))
			t.must("Allreduce", t.Allreduce(b, mpi.Float64, mpi.Sum))
			all := make([]byte, 8*t.Size())
			t.must("Allgather", t.Allgather(b, all))
			for k := range t.Size() {
				t.expectEqual("the result of another rank", all[8*k:8*k+8], b)
			}
		}
	},
	"mpi/allgather/by-rank": func(t *T) {
		for i, n := range []int{0, 1, 8, 500, 9000, 70_000} {
			r := newGuardedBuf(n * t.Size())
			t.must("Allgather", t.Allgather(data(10*i+t.Rank(), n), r.buf))
			var want []byte
			for k := range t.Size() {
				want = append(want, data(10*i+k, n)...)
			}
			t.expectBuffer("what was gathered", r, want)
		}
	},
	"mpi/alltoall/transposes": func(t *T) { alltoall(t, []int{0, 1, 8, 250, 256, 257, 1000, 9000, 70_000}) },
	"mpi/alltoall/other-numbers": func(t *T) {
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
	"mpi/collective/all-in-a-row": func(t *T) {
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
			t.must("Allreduce", t.Allreduce(v, mpi.Uint64, mpi.Max))
			t.expectEqual("the maximum", v, word(uint64(i*10+n-1)))
			all := make([]byte, 8*n)
			t.must("Allgather", t.Allgather(word(uint64(i*100+me)), all))
			for k := range n {
				t.expectEqual("what was gathered", all[8*k:8*k+8], word(uint64(i*100+k)))
			}
			alltoall(t, []int{16})
		}
	},
	"mpi/collective/beside-messages": func(t *T) {
		n, me := t.Size(), t.Rank()
		p, q := t.irecv(largeSize, (me+1)%n, 3), t.irecv(8, mpi.AnySource, mpi.AnyTag)
		r := t.isend(data(me, largeSize), (me+n-1)%n, 3)
		for i := range 5 {
			v := word(uint64(me + i))
			t.must("Allreduce", t.Allreduce(v, mpi.Uint64, mpi.Sum))
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
}

// alltoall is one of each size, looked at.
func alltoall(t *T, sizes []int) {
	n, me := t.Size(), t.Rank()
	for i, size := range sizes {
		var out, want []byte
		for k := range n {
			out = append(out, data(1000*i+10*me+k, size)...)
			want = append(want, data(1000*i+10*k+me, size)...)
		}
		r := newGuardedBuf(size * n)
		t.must("Alltoall", t.Alltoall(out, r.buf))
		t.expectBuffer("what came", r, want)
	}
}

func boolWord(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

// operations are those of whole numbers, by hand.
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

// typed are reductions of three ranks whose result shows the type.
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
}

func le32(v uint32) []byte { return word(uint64(v))[:4] }
