package misuse_test

import (
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/datatype"
	"github.com/fabrictest/fabrictest/mpi/misuse"
)

// inOrder calls a and then b, but on the last rank of a wrong program b and then a.
func inOrder(w *mpi.World, wrong bool, a, b func()) {
	if wrong && w.Rank() == w.Size()-1 {
		a, b = b, a
	}
	a()
	b()
}

// wrongHere says that a program is wrong and this its last rank.
func wrongHere(w *mpi.World, wrong bool) bool { return wrong && w.Rank() == w.Size()-1 }

func words(n int) []byte { return make([]byte, 8*n) }

// collectives are programs whose ranks call different collectives, or with different arguments.
var collectives = []program{
	{"barrier and broadcast", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		inOrder(w, wrong, func() {
			ok(w.Barrier()) // A
		}, func() {
			ok(w.Bcast(word(), 0)) // B
		})
	}},
	{"reduce and allreduce", 3, misuse.CollectiveOrder, "0A 2B", func(w *mpi.World, wrong bool) {
		inOrder(w, wrong, func() {
			ok(w.Reduce(word(), word(), mpi.Int64, mpi.Sum, 0)) // A
		}, func() {
			ok(w.Allreduce(word(), word(), mpi.Int64, mpi.Sum)) // B
		})
	}},
	{"gather and scatter", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		inOrder(w, wrong, func() {
			ok(w.Gather(word(), words(2), 0)) // A
		}, func() {
			ok(w.Scatter(words(2), word(), 0)) // B
		})
	}},
	{"allgather and alltoall", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		inOrder(w, wrong, func() {
			ok(w.Allgather(word(), words(2))) // A
		}, func() {
			ok(w.Alltoall(words(2), words(2))) // B
		})
	}},
	{"scan and exscan", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		inOrder(w, wrong, func() {
			ok(w.Scan(word(), word(), mpi.Int64, mpi.Sum)) // A
		}, func() {
			ok(w.Exscan(word(), word(), mpi.Int64, mpi.Sum)) // B
		})
	}},
	{"gather and gather of different blocks", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		if wrongHere(w, wrong) {
			ok(w.Gatherv(word(), nil, nil, nil, 0)) // B
			return
		}
		ok(w.Gather(word(), words(2), 0)) // A
	}},
	{"blocking and nonblocking barrier", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		if wrongHere(w, wrong) {
			get(get(w.Ibarrier()).Wait()) // B
			return
		}
		ok(w.Barrier()) // A
	}},
	{"nonblocking collectives start in another order", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		var rs []*mpi.Request
		inOrder(w, wrong, func() {
			rs = append(rs, get(w.Ibcast(word(), 0))) // A
		}, func() {
			rs = append(rs, get(w.Iallreduce(word(), word(), mpi.Int64, mpi.Sum))) // B
		})
		get(mpi.WaitAll(rs))
	}},
	{"persistent collectives start in another order", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		a, b := get(w.BarrierInit()), get(w.BcastInit(word(), 0))
		inOrder(w, wrong, func() {
			ok(a.Start()) // A
		}, func() {
			ok(b.Start()) // B
		})
		get(mpi.WaitAll([]*mpi.Request{a, b}))
		ok(a.Free())
		ok(b.Free())
	}},
	{"persistent collectives are created in another order", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		var rs []*mpi.Request
		inOrder(w, wrong, func() {
			rs = append(rs, get(w.BarrierInit())) // A
		}, func() {
			rs = append(rs, get(w.AllgatherInit(word(), words(2)))) // B
		})
		for _, r := range rs {
			if !wrong {
				ok(r.Start())
				get(r.Wait())
			}
			ok(r.Free())
		}
	}},
	{"duplicate and split", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		var c *mpi.Comm
		if wrongHere(w, wrong) {
			c = get(w.Split(0, 0)) // B
		} else {
			c = get(w.Dup()) // A
		}
		ok(c.Free())
	}},
	{"window and barrier", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		inOrder(w, wrong, func() {
			win := get(w.WinAllocate(8)) // A
			ok(win.Free())
		}, func() {
			ok(w.Barrier()) // B
		})
	}},
	{"collectives on a part of the ranks", 4, misuse.CollectiveOrder, "1A 3B", func(w *mpi.World, wrong bool) {
		c := get(w.Split(w.Rank()%2, 0))
		inOrder(w, wrong, func() {
			ok(c.Allreduce(word(), word(), mpi.Int64, mpi.Sum)) // A
		}, func() {
			ok(c.Barrier()) // B
		})
		ok(c.Free())
	}},
	{"order depends on a condition", 3, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		for i := range 4 {
			if wrong && i == 3 && w.Rank() == 1 {
				ok(w.Barrier()) // B
				continue
			}
			ok(w.Allreduce(word(), word(), mpi.Int64, mpi.Sum)) // A
		}
	}},

	{"a rank skips a barrier", 3, misuse.CollectiveMissing, "0A", func(w *mpi.World, wrong bool) {
		if wrongHere(w, wrong) {
			return
		}
		ok(w.Barrier()) // A
	}},
	{"a rank skips the second broadcast", 2, misuse.CollectiveMissing, "0A", func(w *mpi.World, wrong bool) {
		for i := range 2 {
			if i == 1 && wrongHere(w, wrong) {
				return
			}
			ok(w.Bcast(word(), 0)) // A
		}
	}},
	{"only the root calls the broadcast", 3, misuse.CollectiveMissing, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 || !wrong {
			ok(w.Bcast(word(), 0)) // A
		}
	}},
	{"a rank skips a nonblocking collective", 2, misuse.CollectiveMissing, "0A", func(w *mpi.World, wrong bool) {
		if !wrongHere(w, wrong) {
			r := get(w.Iallgather(word(), words(2))) // A
			get(r.Wait())
		}
	}},
	{"a rank does not free a communicator", 2, misuse.CollectiveMissing, "0A", func(w *mpi.World, wrong bool) {
		c := get(w.Dup())
		if !wrongHere(w, wrong) {
			ok(c.Free()) // A
		}
	}},
	{"a rank does not free a window", 2, misuse.CollectiveMissing, "0A", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if !wrongHere(w, wrong) {
			ok(win.Free()) // A
		}
	}},
	{"a rank skips a fence", 2, misuse.CollectiveOrder, "0A 1B", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if !wrongHere(w, wrong) {
			ok(win.Fence(0)) // A
		}
		ok(win.Free()) // B
	}},

	{"roots of a broadcast", 2, misuse.CollectiveRoot, "0A 1A", func(w *mpi.World, wrong bool) {
		root := 0
		if wrong {
			root = w.Rank()
		}
		ok(w.Bcast(word(), root)) // A
	}},
	{"roots of a reduce", 3, misuse.CollectiveRoot, "0A 2A", func(w *mpi.World, wrong bool) {
		root := 0
		if wrongHere(w, wrong) {
			root = 1
		}
		ok(w.Reduce(word(), word(), mpi.Int64, mpi.Sum, root)) // A
	}},
	{"roots of a gather", 2, misuse.CollectiveRoot, "0A 1A", func(w *mpi.World, wrong bool) {
		root := 0
		if wrongHere(w, wrong) {
			root = 1
		}
		ok(w.Gather(word(), words(2), root)) // A
	}},
	{"roots of a nonblocking scatter", 2, misuse.CollectiveRoot, "0A 1A", func(w *mpi.World, wrong bool) {
		root := 0
		if wrongHere(w, wrong) {
			root = 1
		}
		r := get(w.Iscatter(words(2), word(), root)) // A
		get(r.Wait())
	}},

	{"operations of an allreduce", 2, misuse.CollectiveOp, "0A 1A", func(w *mpi.World, wrong bool) {
		op := mpi.Sum
		if wrongHere(w, wrong) {
			op = mpi.Max
		}
		ok(w.Allreduce(word(), word(), mpi.Int64, op)) // A
	}},
	{"operations of a reduce-scatter", 2, misuse.CollectiveOp, "0A 1A", func(w *mpi.World, wrong bool) {
		op := mpi.Min
		if wrongHere(w, wrong) {
			op = mpi.Max
		}
		ok(w.ReduceScatterBlock(words(2), word(), mpi.Int64, op)) // A
	}},
	{"operations of the program", 2, misuse.CollectiveOp, "0A 1A", func(w *mpi.World, wrong bool) {
		add := get(w.CreateOp(func(in, inout []byte) { inout[0] += in[0] }, 8, true))
		first := get(w.CreateOp(func(in, inout []byte) { copy(inout, in) }, 8, false))
		op := add
		if wrongHere(w, wrong) {
			op = first
		}
		ok(w.Scan(word(), word(), mpi.Int64, op)) // A
	}},
	{"types of an allreduce", 2, misuse.CollectiveType, "0A 1A", func(w *mpi.World, wrong bool) {
		t := mpi.Int64
		if wrongHere(w, wrong) {
			t = mpi.Float64
		}
		ok(w.Allreduce(word(), word(), t, mpi.Sum)) // A
	}},
	{"types of equal size in a persistent reduce", 2, misuse.CollectiveType, "0A 1A", func(w *mpi.World, wrong bool) {
		t := mpi.Int32
		if wrongHere(w, wrong) {
			t = mpi.Float32
		}
		r := get(w.ReduceInit(word(), word(), t, mpi.Sum, 0)) // A
		ok(r.Start())
		get(r.Wait())
		ok(r.Free())
	}},

	{"sizes of a broadcast", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		n := 2
		if wrongHere(w, wrong) {
			n = 1
		}
		ok(w.Bcast(words(n), 0)) // A
	}},
	{"sizes of an allreduce", 3, misuse.CollectiveCount, "0A 2A", func(w *mpi.World, wrong bool) {
		n := 2
		if wrongHere(w, wrong) {
			n = 3
		}
		ok(w.Allreduce(words(n), words(n), mpi.Int64, mpi.Sum)) // A
	}},
	{"sizes of an allgather", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		n := 1
		if wrongHere(w, wrong) {
			n = 2
		}
		ok(w.Allgather(words(n), words(2*n))) // A
	}},
	{"sizes of an alltoall", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		n := 1
		if wrongHere(w, wrong) {
			n = 2
		}
		ok(w.Alltoall(words(2*n), words(2*n))) // A
	}},
	{"block of a gather", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		n := 8
		if wrongHere(w, wrong) {
			n = 4
		}
		ok(w.Gather(make([]byte, n), words(2), 0)) // A
	}},
	{"block of a gather of different blocks", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		n := 8 * (w.Rank() + 1)
		if wrongHere(w, wrong) {
			n++
		}
		ok(w.Gatherv(make([]byte, n), words(3), []int{8, 16}, nil, 0)) // A
	}},
	{"block of a scatter of different blocks", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		n := 8 * (w.Rank() + 1)
		if wrongHere(w, wrong) {
			n = 8
		}
		ok(w.Scatterv(words(3), []int{8, 16}, nil, make([]byte, n), 0)) // A
	}},
	{"sizes of an allgather of different blocks", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		counts := []int{8, 16}
		if wrongHere(w, wrong) {
			counts[0] = 4
		}
		ok(w.Allgatherv(words(w.Rank()+1), words(3), counts, nil)) // A
	}},
	{"sizes of a reduce-scatter", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		counts := []int{8, 16}
		if wrongHere(w, wrong) {
			counts = []int{16, 8}
		}
		ok(w.ReduceScatter(words(3), make([]byte, counts[w.Rank()]), counts, mpi.Int64, mpi.Sum)) // A
	}},
	{"blocks of an alltoall", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		send, recv := []int{8, 8}, []int{8, 8}
		if wrongHere(w, wrong) {
			recv[0] = 16
		}
		ok(w.Alltoallv(words(2), send, nil, words(3), recv, nil)) // A
	}},
	{"elements of an alltoall of datatypes", 2, misuse.CollectiveCount, "0A 1A", func(w *mpi.World, wrong bool) {
		pair := get(datatype.Contiguous(2, datatype.Of(mpi.Int32)))
		single := datatype.Of(mpi.Int64)
		counts, offsets := []int{1, 1}, []int{0, 8}
		sendCounts := []int{1, 1}
		if wrongHere(w, wrong) {
			sendCounts[0] = 0
		}
		ok(w.Alltoallw(words(2), sendCounts, offsets, []*datatype.Type{pair, pair}, words(2), counts, offsets, []*datatype.Type{single, single})) // A
	}},
	{"assertions of a fence", 2, misuse.FenceAssert, "0A 1A", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		a := mpi.NoPrecede
		if wrongHere(w, wrong) {
			a = 0
		}
		ok(win.Fence(a)) // A
		ok(win.Fence(mpi.NoSucceed))
		ok(win.Free())
	}},
}
