package mpi

import "github.com/fabrictest/fabrictest/mpi"

var assertCases = []Case{{
	ID: "mpi/assert/fence", Cite: rule("mpi/11.5.5/1"), Setup: ranks(3),
	Title:   "Fences with promises that are kept mean what fences mean",
	Sends:   "epochs of puts, of gets and of nothing, with every promise that is true of each",
	Expects: "the data behind each",
	Defects: []string{"FenceEarly", "FenceAlone", "PutsCut"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		next, last := (me+1)%n, (me+n-1)%n
		w := t.window(200)
		copy(w.Memory()[100:], data(me, 100))
		w.fence(mpi.NoPrecede)
		for i := range 6 {
			if me == i%n {
				t.idle()
			}
			w.put(data(10*i+me, 100), next, 0)
			w.fence(mpi.NoStore | mpi.NoPut)
			t.expectEqual("the data of Put", w.Memory()[:100], data(10*i+last, 100))
			r := newGuardedBuf(100)
			w.get(r.buf, last, 100)
			w.fence(mpi.NoStore)
			t.expectBuffer("the data of Get", r, data(last, 100))
		}
		w.fence(mpi.NoPrecede | mpi.NoSucceed)
	},
}, {
	ID: "mpi/assert/lock", Cite: rule("mpi/11.5.5/1"), Setup: ranks(3),
	Title:   "A lock that nobody else asks for need not be checked, and is an epoch all the same",
	Sends:   "by turns, which they tell each other, ranks lock one target or all with NoCheck, put and get",
	Expects: "what was put in the turn before",
	Defects: []string{"UnlockEarly", "PutsCut"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		w := t.window(300)
		for i := range 5 * n {
			if i%n != me {
				continue
			}
			if i > 0 {
				t.awaitSignal((me + n - 1) % n)
			}
			all := i%2 == 1
			if all {
				t.must("LockAll", w.LockAll(mpi.NoCheck))
			} else {
				t.must("Lock", w.Lock(mpi.Exclusive, 1, mpi.NoCheck))
			}
			if i > 0 {
				w.expectFlushedGet("the data of the Put of the turn before", data(i-1, 300), 1, 0)
			}
			w.put(data(i, 300), 1, 0)
			if all {
				w.unlockAll()
			} else {
				w.unlock(1)
			}
			if i < 5*n-1 {
				t.signal((me + 1) % n)
			}
		}
	},
}, {
	ID: "mpi/assert/post", Cite: rule("mpi/11.5.5/1"), Setup: ranks(3),
	Title:   "Start need not check for posts that are known to be there",
	Sends:   "the target posts with NoCheck, a barrier, the origins start with NoCheck",
	Expects: "the data behind Wait",
	Defects: []string{"WaitEarly", "WaitsForFirst", "CompleteEarly"}, Run: func(t *T) {
		w := t.window(2000)
		for i := range 4 {
			t.onRank(0, func() { t.must("Post", w.Post([]int{1, 2}, mpi.NoCheck)) })
			t.barrier()
			if t.Rank() > 0 {
				t.must("Start", w.Start([]int{0}, mpi.NoCheck))
				if t.Rank() == 2 {
					t.idle()
				}
				w.put(data(10*i+t.Rank(), 1000), 0, 1000*(t.Rank()-1))
				w.complete()
				continue
			}
			w.wait()
			t.expectEqual("the data of rank 1", w.Memory()[:1000], data(10*i+1, 1000))
			t.expectEqual("the data of rank 2", w.Memory()[1000:], data(10*i+2, 1000))
		}
	},
}, {
	ID: "mpi/lock/shared-puts", Cite: rule("mpi/11.7/2"), Setup: ranks(4),
	Title:   "Puts of many ranks beside each other, under shared locks, do not harm each other",
	Sends:   "all ranks put pieces of 7 bytes, every fourth their own, to all windows at the same time",
	Expects: "every piece",
	Defects: []string{"PutsCut", "PutsOff"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		const pieces, size = 50, 7
		w := t.window(n * pieces * size)
		for k := range n {
			w.lock(mpi.Shared, k)
			for i := range pieces {
				w.put(data(100*me+i+k, size), k, (i*n+me)*size)
			}
			w.unlock(k)
		}
		t.barrier()
		for k := range n {
			for i := range pieces {
				w.expectOwn("a piece", (i*n+k)*size, data(100*k+i+me, size))
			}
		}
	},
}, {
	ID: "mpi/flush/own-puts-are-seen", Cite: rule("mpi/11.5.4/1"),
	Title:   "A get behind a flush sees what the same rank has put before it",
	Sends:   "put, flush, get, flush on one place, 30 times, small and large",
	Expects: "what was put",
	Defects: []string{"FlushEarly", "GetsNothing"}, Run: func(t *T) {
		w := t.window(40_000)
		w.lockAll()
		for i := range 30 {
			n := []int{8, 600, 40_000}[i%3]
			w.flushedPut(data(2*i+t.Rank(), n), t.other(), 0)
			w.expectFlushedGet("the data of Put", data(2*i+t.Rank(), n), t.other(), 0)
		}
		w.unlockAll()
	},
}}
