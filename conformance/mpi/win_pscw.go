package mpi

import "github.com/fabrictest/fabrictest/mpi"

var pscwCases = []Case{{
	ID: "mpi/pscw/put", Cite: rule("mpi/11.5.2/1"), Setup: ranks(3),
	Title:   "What origins have put is in the target's memory when Wait returns",
	Sends:   "two origins put to one target, small and large, one of them late",
	Expects: "both, whole, behind Wait",
	Defects: []string{"WaitEarly", "WaitsForFirst", "CompleteEarly", "PutsCut"}, Run: func(t *T) {
		for i, n := range []int{16, 100_000} {
			w := t.window(2 * n)
			if t.Rank() == 0 {
				w.post(1, 2)
				w.wait()
				t.expectEqual("the data of rank 1", w.Memory()[:n], data(10*i+1, n))
				t.expectEqual("the data of rank 2", w.Memory()[n:], data(10*i+2, n))
			} else {
				w.start(0)
				if t.Rank() == 1+i {
					t.idle()
				}
				w.put(data(10*i+t.Rank(), n), 0, (t.Rank()-1)*n)
				w.complete()
			}
			w.free()
		}
	},
}, {
	ID: "mpi/pscw/not-before-post", Cite: rule("mpi/11.5.2/2"),
	Title:   "Nothing of an origin is done to a window before it is posted",
	Sends:   "the origin starts and puts, or does nothing by turns, while the target works on its memory and posts late",
	Expects: "the memory as the target left it until it posts, then the put, if there is one",
	Defects: []string{"StartIgnoresPost"}, Run: func(t *T) {
		w := t.window(64)
		for i := range 5 {
			puts := i%2 == 0
			if t.Rank() == 1 {
				w.start(0)
				if puts {
					w.put(data(i, 64), 0, 0)
				}
				w.complete()
			} else {
				mine := data(100+i, 64)
				copy(w.Memory(), mine)
				t.idle()
				t.expectEqual("the memory before Post", w.Memory(), mine)
				w.post(1)
				w.wait()
				if puts {
					mine = data(i, 64)
				}
				t.expectEqual("the memory behind Wait", w.Memory(), mine)
			}
		}
	},
}, {
	ID: "mpi/pscw/post-in-another-epoch", Cite: rule("mpi/11.5.2/1"), Setup: ranks(3),
	Title:   "A window can be posted while its rank accesses another, or its origin does",
	Sends:   "ranks 2 and 0 post to each other while rank 0 is between Start and Complete to rank 1; then they start to each other",
	Expects: "the data on all",
	Defects: []string{"PostForgotten"}, Run: func(t *T) {
		w := t.window(32)
		for i := range 3 {
			switch t.Rank() {
			case 0:
				w.start(1)
				t.signal(2)
				t.awaitSignal(2)
				w.post(2)
				t.idle()
				w.put(data(10*i+1, 32), 1, 0)
				w.complete()
				w.start(2)
				w.put(data(10*i+2, 32), 2, 0)
				w.complete()
				w.wait()
			case 1:
				w.post(0)
				w.wait()
			case 2:
				t.awaitSignal(0)
				w.post(0)
				t.signal(0)
				w.start(0)
				w.put(data(10*i, 32), 0, 0)
				w.complete()
				w.wait()
			}
			t.expectEqual("the data of Put", w.Memory(), data(10*i+t.Rank(), 32))
		}
	},
}, {
	ID: "mpi/pscw/test", Cite: rule("mpi/11.5.2/3"), Setup: ranks(3),
	Title:   "Win.Test is false until all origins are through, and then does what Wait does",
	Sends:   "two origins; the second completes only after the target has looked",
	Expects: "false, then true with all data; a new Post after that",
	Defects: []string{"WaitEarly", "WaitsForFirst"}, Run: func(t *T) {
		w := t.window(32)
		for i := range 2 {
			switch t.Rank() {
			case 0:
				w.post(1, 2)
				t.awaitSignal(1)
				t.idle()
				done := result(w.Test())(t, "Win.Test")
				t.check(!done, "Test to be false while an origin is not through", "true")
				t.signal(2)
				t.waitUntil("Win.Test is true", func() bool {
					done := result(w.Test())(t, "Win.Test")
					return done
				})
				t.expectEqual("the window", w.Memory(), append(data(10*i+1, 16), data(10*i+2, 16)...))
			case 1:
				w.start(0)
				w.put(data(10*i+1, 16), 0, 0)
				w.complete()
				t.signal(0)
			case 2:
				w.start(0)
				w.put(data(10*i+2, 16), 0, 16)
				t.awaitSignal(0)
				w.complete()
			}
		}
	},
}, {
	ID: "mpi/pscw/complete", Cite: rule("mpi/11.5.2/4"),
	Title:   "Complete returns when the origin's buffers are free and its gets have come",
	Sends:   "rounds of a get and a put from one pair of buffers, overwritten behind Complete",
	Expects: "what was got, behind Complete; what was put, behind Wait",
	Defects: []string{"CompleteEarly", "GetsNothing"}, Run: func(t *T) {
		w := t.window(2 * 4000)
		out := make([]byte, 4000)
		for i := range 6 {
			if t.Rank() == 0 {
				copy(w.Memory()[:4000], data(10*i, 4000))
				w.post(1)
				w.wait()
				t.expectEqual("the data of Put", w.Memory()[4000:], data(10*i+1, 4000))
			} else {
				copy(out, data(10*i+1, 4000))
				w.start(0)
				r := newGuardedBuf(4000)
				w.get(r.buf, 0, 0)
				w.put(out, 0, 4000)
				w.complete()
				t.expectBuffer("the data of Get", r, data(10*i, 4000))
				clear(out)
			}
		}
	},
}, {
	ID: "mpi/pscw/groups", Cite: rule("mpi/11.5.2/1"), Setup: ranks(4),
	Title:   "Only the groups that are named take part",
	Sends:   "each rank is posted to its right and starts to its left, all at once; a fourth pair of calls with empty groups",
	Expects: "the neighbour's data; that empty epochs end at once",
	Defects: []string{"WaitEarly", "PutsOff", "CompleteEarly"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		left, right := (me+n-1)%n, (me+1)%n
		w := t.window(40)
		for i := range 4 {
			w.post(right)
			w.start(left)
			w.put(data(10*i+me, 32), left, 4)
			w.complete()
			w.wait()
			t.expectEqual("the neighbour's data", w.Memory()[4:36], data(10*i+right, 32))
			t.check(w.Memory()[3] == 0 && w.Memory()[36] == 0, "nothing beside it", "%x", w.Memory())
		}
		w.post()
		w.start()
		w.complete()
		w.wait()
	},
}, {
	ID: "mpi/pscw/both-at-once", Cite: rule("mpi/11.5.2/5"), Setup: ranks(3),
	Title:   "A rank can be origin and target of the same others at the same time",
	Sends:   "all ranks post to and start to all others, with large puts, five rounds",
	Expects: "all data",
	Defects: []string{"WaitsForFirst", "PutsCutLarge"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		const size = 70_000
		var others []int
		for k := range n {
			if k != me {
				others = append(others, k)
			}
		}
		w := t.window(n * size)
		for i := range 5 {
			w.post(others...)
			w.start(others...)
			for _, k := range others {
				w.put(data(100*i+10*me+k, size), k, me*size)
			}
			if me == i%n {
				t.idle()
			}
			w.complete()
			w.wait()
			for _, k := range others {
				t.expectEqual("the data of Put", w.Memory()[k*size:(k+1)*size], data(100*i+10*k+me, size))
			}
		}
	},
}, {
	ID: "mpi/pscw/accumulate", Cite: rule("mpi/11.7.1/1", "mpi/11.5.2/1"), Setup: ranks(4),
	Title:   "Accumulates of several origins in one epoch all count",
	Sends:   "three origins add to the same numbers of one target",
	Expects: "the sums behind Wait",
	Defects: []string{"AccumulatesRace", "AccumulatesReplace", "CompleteEarly", "WaitEarly"}, Run: func(t *T) {
		w := t.window(24)
		if t.Rank() == 0 {
			w.post(1, 2, 3)
			w.wait()
			t.expectEqual("the sums", w.Memory(), words(6*20, 60*20, 60))
		} else {
			w.start(0)
			v := uint64(t.Rank())
			for range 20 {
				w.accumulate(words(v, 10*v, 1), 0, 0, mpi.Uint64, mpi.Sum)
			}
			w.complete()
		}
	},
}}
