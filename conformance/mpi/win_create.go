package mpi

import "github.com/fabrictest/fabrictest/mpi"

var windowCases = []Case{{
	ID: "mpi/win/over-a-buffer", Cite: rule("mpi/11.2.1/1"),
	Title:   "A window that is made of a buffer is that buffer",
	Sends:   "WinCreate over a part of a buffer, a put from the other rank; windows that end within a word, accumulates up to their ends",
	Expects: "the data in the buffer itself, nothing beside it; Memory is the same memory",
	Defects: []string{"WinCopies"}, Run: func(t *T) {
		r := newGuardedBuf(100)
		win := result(t.WinCreate(r.buf))(t, "WinCreate")
		w := &W{win, t}
		w.fence(0)
		w.put(data(t.Rank(), 60), t.other(), 0)
		w.fence(0)
		t.expectBuffer("the buffer", r, data(t.other(), 60))
		r.buf[0] ^= 0xff
		t.check(w.Memory()[0] == r.buf[0] && len(w.Memory()) == 100, "Memory to be the buffer", "other memory")
		w.free()
		for _, n := range []int{4, 60, 63, 65} {
			b := make([]byte, n)
			w = &W{result(t.WinCreate(b))(t, "WinCreate"), t}
			w.fence(0)
			w.accumulate([]byte{9, byte(8 + t.Rank())}, t.other(), n-2, mpi.Byte, mpi.Sum)
			w.fence(0)
			t.expectEqual("the buffer", b, append(make([]byte, n-2), 9, byte(8+t.other())))
			w.free()
		}
	},
}, {
	ID: "mpi/win/sizes-differ", Cite: rule("mpi/11.2.1/2"), Setup: ranks(4),
	Title:   "Windows may have another size on every rank, none at all too",
	Sends:   "sizes 0, 9, 36 and 5000; a put and an accumulate to the last byte of each, and a put beyond it",
	Expects: "Size of each; the former arrive, the latter are ErrRMARange",
	Defects: []string{"SizesAlike", "RangesUnchecked"}, Run: func(t *T) {
		sizes := []int{0, 9, 36, 5000}
		w := t.window(sizes[t.Rank()])
		for k, n := range sizes {
			t.check(w.Size(k) == n, "the size of each rank's window", "%d of rank %d, not %d", w.Size(k), k, n)
		}
		w.lockAll()
		for k, n := range sizes {
			if n > 0 && t.Rank() == (k+1)%4 {
				w.flushedPut([]byte{byte(10 + k)}, k, n-1)
				w.accumulate([]byte{10}, k, n-1, mpi.Byte, mpi.Sum)
			}
			t.mustFail("Put behind the end", w.Put([]byte{9}, k, n), mpi.ErrRMARange)
		}
		w.unlockAll()
		t.barrier()
		if n := sizes[t.Rank()]; n > 0 {
			w.expectOwn("the last byte", n-1, []byte{byte(20 + t.Rank())})
		}
	},
}, {
	ID: "mpi/win/apart", Cite: rule("mpi/11.2/1"),
	Title:   "Several windows of the same ranks are apart",
	Sends:   "two windows, puts of different data to the same place of each",
	Expects: "each its own data",
	Defects: []string{"WindowsMixed"}, Run: func(t *T) {
		a, b := t.window(64), t.window(64)
		a.fence(0)
		b.fence(0)
		a.put(data(1+t.Rank(), 32), t.other(), 8)
		b.put(data(11+t.Rank(), 32), t.other(), 8)
		a.fence(0)
		b.fence(0)
		t.expectEqual("the first window", a.Memory()[8:40], data(1+t.other(), 32))
		t.expectEqual("the second window", b.Memory()[8:40], data(11+t.other(), 32))
		a.free()
		b.free()
	},
}, {
	ID: "mpi/win/ranks-of-its-communicator", Cite: rule("mpi/11.2.1/3"), Setup: ranks(4),
	Title:   "Targets are ranks of the communicator that the window was made of",
	Sends:   "a window in a communicator with the ranks turned round, operations on the next rank there in epochs of all kinds",
	Expects: "the data where that rank is, and in results",
	Defects: []string{"WindowRanksOfWorld", "KeysIgnored"}, Run: func(t *T) {
		c := t.split(0, -t.Rank())
		w := c.window(32)
		w.fence(0)
		w.put(data(t.Rank(), 16), (c.Rank()+1)%4, 0)
		w.fence(0)
		from := (c.Rank() + 3) % 4
		t.expectEqual("the window", w.Memory()[:16], data(3-from, 16))
		t.expectPlace(3-c.Rank(), 4)
		next := (c.Rank() + 1) % 4
		w.post(from)
		w.start(next)
		w.put(data(10+t.Rank(), 16), next, 0)
		w.accumulate(word(uint64(5+c.Rank())), next, 16, mpi.Uint64, mpi.Sum)
		w.complete()
		w.wait()
		t.expectEqual("the window", w.Memory()[:24], append(data(10+3-from, 16), word(uint64(5+from))...))
		c.barrier()
		w.lock(mpi.Exclusive, next)
		was := w.fetch(1, next, 16, mpi.Sum)
		t.check(was == uint64(5+c.Rank()), "the word of the next rank", "%d", was)
		was = w.swap(uint64(6+c.Rank()), 40, next, 16)
		t.check(was == uint64(6+c.Rank()), "the word of the next rank, and 1", "%d", was)
		w.unlock(next)
		w.expectOwnAfterBarrier("the word", 16, word(40))
		w.free()
	},
}, {
	ID: "mpi/win/freed", Cite: rule("mpi/11.2.5/1"),
	Title:   "A window that was freed cannot be used, and another can",
	Sends:   "Free, then Put, Fence and Lock; another window",
	Expects: "ErrWin; the other one works",
	Defects: []string{"FreedWindowIsUsable"}, Run: func(t *T) {
		a, b := t.window(16), t.window(16)
		a.free()
		t.mustFail("Fence", a.Fence(0), mpi.ErrWin)
		t.mustFail("Lock", a.Lock(mpi.Shared, 0, 0), mpi.ErrWin)
		t.mustFail("Put", a.Put([]byte{1}, 0, 0), mpi.ErrWin)
		b.fence(0)
		b.put(data(t.Rank(), 16), 1-t.Rank(), 0)
		b.fence(0)
		t.expectEqual("the other window", b.Memory(), data(1-t.Rank(), 16))
		b.free()
		t.expectUsable()
	},
}, {
	ID: "mpi/win/nobody", Cite: rule("mpi/11.3/1"),
	Title:   "Operations on nobody's window do nothing",
	Sends:   "Put, Get and Accumulate with ProcNull between fences and under LockAll",
	Expects: "no error, no effect",
	Defects: []string{"NullRefused"}, Run: func(t *T) {
		w := t.window(16)
		all := func() {
			b := data(3, 16)
			t.must("Put", w.Put(b, mpi.ProcNull, 0))
			t.must("Get", w.Get(b, mpi.ProcNull, 0))
			t.must("Accumulate", w.Accumulate(b, mpi.ProcNull, 0, mpi.Uint64, mpi.Sum))
			t.expectEqual("the buffer of a Get from nobody", b, data(3, 16))
		}
		w.fence(0)
		all()
		w.fence(mpi.NoSucceed)
		w.lockAll()
		all()
		w.unlockAll()
		w.expectOwn("the window", 0, make([]byte, 16))
	},
}, {
	ID: "mpi/win/empty-operations", Cite: rule("mpi/11.3/3"),
	Title:   "Operations without data do nothing, up to the end of a window",
	Sends:   "puts, gets and accumulates of no bytes, with and without requests, between fences and under LockAll; one beyond the end",
	Expects: "no error, requests that complete, no effect; ErrRMARange beyond the end",
	Defects: []string{"EmptyOperationsHang"}, Run: func(t *T) {
		w := t.window(16)
		w.initOwn(0, data(t.Rank(), 16))
		all := func() {
			for _, at := range []int{0, 16} {
				w.put(nil, t.other(), at)
				w.get(nil, t.other(), at)
				w.accumulate(nil, t.other(), at, mpi.Uint64, mpi.Sum)
				t.must("GetAccumulate", w.GetAccumulate(nil, nil, t.other(), at, mpi.Uint64, mpi.NoOp))
			}
			t.mustFail("Put beyond the end", w.Put(nil, t.other(), 17), mpi.ErrRMARange)
		}
		w.fence(0)
		all()
		w.fence(mpi.NoSucceed)
		w.lockAll()
		all()
		t.waitAll(started(w.Rput(nil, t.other(), 0))(t, "Rput"), started(w.Rget(nil, t.other(), 16))(t, "Rget"),
			started(w.Raccumulate(nil, t.other(), 8, mpi.Uint64, mpi.Sum))(t, "Raccumulate"))
		w.unlockAll()
		w.expectOwnAfterBarrier("the window", 0, data(t.Rank(), 16))
	},
}, {
	ID: "mpi/win/origins-unchanged", Cite: rule("mpi/11.3/4"),
	Title:   "The buffer of a put keeps its content, whatever others do to the window after it",
	Sends:   "a put, an accumulate, and a fetching one of both ranks, then operations with results of one of them; several rounds",
	Expects: "the origin buffers as they were",
	Defects: []string{"OriginsReused"}, Run: func(t *T) {
		w := t.window(64)
		for i := range 4 {
			origins := [][]byte{data(i, 32), data(10+i, 32), data(20+i, 32)}
			w.lock(mpi.Exclusive, t.other())
			w.put(origins[0], t.other(), 0)
			w.accumulate(origins[1], t.other(), 32, mpi.Uint64, mpi.Sum)
			t.must("GetAccumulate", w.GetAccumulate(origins[2], make([]byte, 32), t.other(), 32, mpi.Uint64, mpi.Sum))
			w.unlock(t.other())
			t.barrier()
			t.onRank(i%2, func() {
				w.lock(mpi.Shared, t.other())
				for range 4 {
					w.swap(1, 2, t.other(), 8)
					t.must("GetAccumulate", w.GetAccumulate(nil, make([]byte, 64), t.other(), 0, mpi.Uint64, mpi.NoOp))
				}
				w.unlock(t.other())
			})
			t.barrier()
			for k, id := range []int{i, 10 + i, 20 + i} {
				t.expectEqual("an origin buffer", origins[k], data(id, 32))
			}
		}
	},
}, {
	ID: "mpi/win/beside-messages", Cite: rule("mpi/11.7/1"), Setup: ranks(3),
	Title:   "Messages and operations on windows do not disturb each other",
	Sends:   "between fences, puts and large messages to the same ranks, all at once",
	Expects: "both, whole",
	Defects: []string{"PutsCut", "LargeDamaged"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		next, last := (me+1)%n, (me+n-1)%n
		w := t.window(n * 50_000)
		w.fence(0)
		p := t.irecv(largeSize, last, 1)
		for k := range n {
			w.put(data(10*me+k, 50_000), k, me*50_000)
		}
		r := t.isend(data(me, largeSize), next, 1)
		t.expectWait(p, data(last, largeSize))
		t.wait(r)
		w.fence(0)
		for k := range n {
			t.expectEqual("the window", w.Memory()[k*50_000:(k+1)*50_000], data(10*k+me, 50_000))
		}
	},
}}
