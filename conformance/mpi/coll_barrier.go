package mpi

import "github.com/fabrictest/fabrictest/mpi"

var barrierCases = []Case{{
	ID: "mpi/barrier/nobody-leaves-early", Cite: rule("mpi/5.3/1"), Setup: ranks(4),
	Title:   "Nobody leaves a barrier before all have come",
	Sends:   "in turn each rank comes last: before it does, it looks for words that the others send it behind the barrier",
	Expects: "no such word before, all of them after",
	Defects: []string{"BarrierEarly", "BarrierMissesOne"}, Run: func(t *T) {
		n := t.Size()
		for last := range n {
			if t.Rank() != last {
				t.barrier()
				t.send(data(last, 8), last, 3)
				continue
			}
			t.expectNoMessage(mpi.AnySource, 3) // nobody has left the barrier
			t.barrier()
			for from := range n {
				if from != last {
					t.expectRecv(data(last, 8), from, 3)
				}
			}
		}
	},
}, {
	ID: "mpi/barrier/again-and-again", Cite: rule("mpi/5.3/1"), Setup: ranks(5),
	Title:   "Barriers follow each other without mixing",
	Sends:   "30 barriers; before each every rank sends a word to the next, which must find it behind the barrier without waiting for long",
	Expects: "the word of this round",
	Defects: []string{"BarrierEarly"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		ahead := 0
		for i := range 30 {
			// A signal that arrives before the barrier of its round shows a rank that did not wait.
			r := t.isend(data(i, 8), (me+1)%n, i)
			p := t.irecv(8, (me+n-1)%n, i)
			t.expectWait(p, data(i, 8))
			t.wait(r)
			if me == i%n {
				t.idle()
			}
			if _, found, err := t.Iprobe(mpi.AnySource, mpi.AnyTag); err == nil && found {
				ahead++
			}
			t.barrier()
		}
		t.check(ahead == 0, "nobody in a round before all have left the one before", "a word of a later round, %d times", ahead)
	},
}, {
	ID: "mpi/barrier/alone", Cite: rule("mpi/5.3/1"),
	Title:   "A barrier of one rank does not wait",
	Sends:   "barriers in Self while the other rank waits for a word; an Ibarrier in Self by WaitAny",
	Expects: "that they return",
	Defects: []string{"InactiveHangs", "IndexOff"}, Run: func(t *T) {
		self := t.inComm(t.w.Self())
		t.onRank(0, func() {
			for range 3 {
				self.barrier()
			}
			r := started(self.Ibarrier())(t, "Ibarrier")
			i, _ := result2(t.w.WaitAny([]Request{nil, r, nil}))(t, "WaitAny")
			t.check(i == 1, "the index 1", "%d", i)
			i, _ = result2(t.w.WaitAny([]Request{nil, r, nil}))(t, "WaitAny")
			t.check(i == mpi.Undefined, "Undefined", "%d", i)
			t.signal(1)
		})
		t.onRank(1, func() { t.awaitSignal(0) })
	},
}, {
	ID: "mpi/ibarrier/waits-for-all", Cite: rule("mpi/5.12.1/1"), Setup: ranks(3),
	Title:   "An Ibarrier is complete when all have begun theirs, and not before",
	Sends:   "two ranks begin, and talk with the third, which has not; then it begins",
	Expects: "Test false until then, completion after",
	Defects: []string{"IbarrierEarly", "BarrierMissesOne"}, Run: func(t *T) {
		if t.Rank() < 2 {
			r := started(t.Ibarrier())(t, "Ibarrier")
			for range 4 {
				t.signal(2)
				t.awaitSignal(2)
				t.expectPending("a barrier that a rank has not come to", r)
			}
			t.signal(2)
			t.wait(r)
			return
		}
		for range 4 {
			t.awaitSignal(0, 1)
			t.idle()
			t.signal(0, 1)
		}
		t.awaitSignal(0, 1)
		t.wait(started(t.Ibarrier())(t, "Ibarrier"))
	},
}, {
	ID: "mpi/ibarrier/with-messages", Cite: rule("mpi/5.12/1"), Setup: ranks(4),
	Title:   "Messages come and go while an Ibarrier is under way",
	Sends:   "an Ibarrier begun, an exchange around the ring, the wait",
	Expects: "the contents, and the barrier",
	Defects: []string{"IbarrierEarly", "LargeDamaged"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		for i, size := range []int{64, largeSize} {
			if me == 3 { // comes late
				t.idle()
			}
			r := started(t.Ibarrier())(t, "Ibarrier")
			s := t.isend(data(10*i+me, size), (me+1)%n, 1)
			t.expectRecv(data(10*i+(me+n-1)%n, size), (me+n-1)%n, 1)
			if me != 3 { // what comes behind must not be there before
				t.wait(r)
				t.send(data(i, 8), 3, 9)
			} else {
				t.wait(r)
				for from := range 3 {
					t.expectRecv(data(i, 8), from, 9)
				}
			}
			t.wait(s)
		}
		// the late one again, with nothing else to do
		if me == 3 {
			t.expectNoMessage(mpi.AnySource, 10)
		}
		t.wait(started(t.Ibarrier())(t, "Ibarrier"))
		if me != 3 {
			t.send(nil, 3, 10)
			return
		}
		for from := range 3 {
			t.expectRecv(nil, from, 10)
		}
	},
}, {
	ID: "mpi/ibarrier/several", Cite: rule("mpi/5.12/2"), Setup: ranks(3),
	Title:   "Several Ibarriers can be under way, and complete in their order",
	Sends:   "all but one rank begin three; the last begins one at a time",
	Expects: "the first complete after its first, and no other; and so on",
	Defects: []string{"IbarrierEarly", "BarrierMissesOne"}, Run: func(t *T) {
		const n = 3
		if t.Rank() == 2 {
			for range n {
				t.awaitSignal(0, 1)
				t.wait(started(t.Ibarrier())(t, "Ibarrier"))
				t.signal(0, 1)
			}
			return
		}
		rs := startAll(n, func(int) Request { return started(t.Ibarrier())(t, "Ibarrier") })
		for i := range rs {
			t.idle()
			for _, r := range rs[i:] {
				t.expectPending("a barrier that a rank has not come to", r)
			}
			t.signal(2)
			t.awaitSignal(2)
			t.wait(rs[i])
		}
	},
}}
