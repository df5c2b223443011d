package mpi

import "github.com/fabrictest/fabrictest/mpi"

// cancel cancels an unmatched receive, and ends the rank unless it completes as cancelled
// and leaves its buffer unchanged.
func (t *T) cancel(p *pending) {
	t.must("Cancel", p.Cancel())
	st := t.wait(p)
	t.check(st.Cancelled, "a receive that was cancelled", "%+v", st)
	t.expectBuffer("the buffer of a receive that was cancelled", p.recvBuf, nil)
}

var cancelCases = []Case{{
	ID: "mpi/cancel/without-a-message", Cite: rule("mpi/3.8.4/1", "mpi/3.8.4/2"), Setup: ranks(1),
	Title:   "A receive for which nothing comes can be cancelled, and the wait for it ends",
	Sends:   "receives of all kinds, cancelled and waited for",
	Expects: "that all waits end, with Cancelled set and the buffer as it was",
	Defects: []string{"CancelIgnored", "CancelUntold", "CancelFails"}, Run: func(t *T) {
		t.cancel(t.irecv(10, 0, 1))
		t.cancel(t.irecv(largeSize, 0, mpi.AnyTag))
		t.cancel(t.irecv(10, mpi.AnySource, 1))
		t.cancel(t.irecv(10, mpi.AnySource, mpi.AnyTag))
		p := t.irecv(10, 0, 1)
		t.must("Cancel", p.Cancel())
		t.waitUntil("Test reports a cancelled receive", func() bool {
			st, done := result2(p.Test())(t, "Test")
			t.check(!done || st.Cancelled, "Cancelled set", "%+v", st)
			return done
		})
		t.expectUsable()
	},
}, {
	ID: "mpi/cancel/message-goes-to-the-next", Cite: rule("mpi/3.8.4/3"),
	Title:   "A message that comes after a receive was cancelled goes to the next one",
	Sends:   "a receive cancelled, then a message of its envelope",
	Expects: "the message in a later receive, whole; the old buffer as it was",
	Defects: []string{"CancelKeepsPosted"}, Run: onSizes([]int{50, largeSize}, func(t *T, i, n int) {
		t.awaitSignal(1)
		t.send(data(i, n), 1, 2)
	}, func(t *T, i, n int) {
		p := t.irecv(n, 0, 2)
		t.cancel(p)
		t.signal(0)
		t.idle()
		t.expectRecv(data(i, n), 0, 2)
		t.expectBuffer("the buffer of the cancelled receive", p.recvBuf, nil)
	}),
}, {
	ID: "mpi/cancel/too-late", Cite: rule("mpi/3.8.4/3"),
	Title:   "A receive that has got its message is not cancelled any more",
	Sends:   "a receive that GetStatus reports complete, then Cancel",
	Expects: "the message, and Cancelled not set",
	Defects: []string{"CancelsWhatArrived"}, Run: onSizes([]int{50, largeSize}, sendSize, func(t *T, i, n int) {
		p := t.irecv(n, 0, i)
		pollUntil(t, "the receive is complete", p.GetStatus)
		t.must("Cancel", p.Cancel())
		t.expectStatus("the receive", t.expectWait(p, data(i, n)), 0, i, n)
	}),
}, {
	ID: "mpi/cancel/race", Cite: rule("mpi/3.8.4/3"),
	Title:   "A receive that is cancelled while its message comes is either cancelled or has it, never both and never neither",
	Sends:   "40 rounds: a receive, its message under way, and Cancel at some moment; if it was cancelled, another receive",
	Expects: "the message exactly once in every round",
	Defects: []string{"CancelKeepsPosted", "CancelsWhatArrived"}, Run: func(t *T) {
		for i := range 40 {
			n := []int{16, 3000, 30_000, 100_000}[i%4]
			t.onRank(0, func() {
				t.awaitSignal(1)
				t.send(data(i, n), 1, 2)
			})
			t.onRank(1, func() {
				p := t.irecv(n, 0, 2)
				t.signal(0)
				for range i / 2 { // so that the message has come further and further
					result2(p.GetStatus())(t, "GetStatus")
					t.w.Compute(1000)
				}
				t.must("Cancel", p.Cancel())
				st := t.wait(p)
				if st.Cancelled {
					t.expectBuffer("the buffer of the cancelled receive", p.recvBuf, nil)
					t.expectRecv(data(i, n), 0, 2)
					t.expectBuffer("the buffer of the cancelled receive, later", p.recvBuf, nil)
					return
				}
				t.expectStatus("the receive", st, 0, 2, n)
				t.expectBuffer("the message", p.recvBuf, data(i, n))
			})
		}
		t.onRank(1, func() { t.expectNoMessage(mpi.AnySource, mpi.AnyTag) })
		t.expectUsable()
	},
}, {
	ID: "mpi/cancel/buffer-untouched", Cite: rule("mpi/3.8.4/3"),
	Title:   "The buffer of a cancelled receive is left as it is",
	Sends:   "a cancelled receive between others of the same envelope, and messages for those",
	Expects: "nothing in its buffer",
	Defects: []string{"CancelBlanksBuffer", "CancelKeepsPosted"}, Run: byRank(func(t *T) {
		t.awaitSignal(1)
		t.send(data(0, 40), 1, 2)
		t.send(data(1, 40), 1, 2)
	}, func(t *T) {
		a, b, c := t.irecv(40, 0, 2), t.irecv(40, 0, 2), t.irecv(40, 0, 2)
		t.cancel(b) // also waits: Cancel alone may return before b is cancelled
		t.signal(0)
		t.expectWait(a, data(0, 40))
		t.expectWait(c, data(1, 40))
		t.expectBuffer("its buffer", b.recvBuf, nil)
	}),
}, {
	ID: "mpi/cancel/the-right-one", Cite: rule("mpi/3.8.4/1"),
	Title:   "Only the receive that was meant is cancelled",
	Sends:   "the third of five alike receives cancelled, then four messages",
	Expects: "the messages in the other four, in order",
	Defects: []string{"CancelsFirst"}, Run: byRank(func(t *T) {
		t.awaitSignal(1)
		for i := range 4 {
			t.send(data(i, 40), 1, 2)
		}
	}, func(t *T) {
		ps := startAll(5, func(int) *pending { return t.irecv(40, 0, 2) })
		t.cancel(ps[2])
		t.signal(0)
		for i, k := range []int{0, 1, 3, 4} {
			t.expectWait(ps[k], data(i, 40))
		}
	}),
}, {
	ID: "mpi/cancel/persistent", Cite: rule("mpi/3.8.4/4"),
	Title:   "A persistent receive that was cancelled can be started again",
	Sends:   "start, cancel, wait; start again, and a message",
	Expects: "Cancelled the first time, the message the second",
	Defects: []string{"PersistentOnce", "CancelIgnored"}, Run: func(t *T) {
		for i := range 3 {
			if t.Rank() == 1 {
				p := t.recvInit(60, 0, 2)
				t.start(p)
				t.cancel(p)
				t.start(p)
				t.signal(0)
				t.expectWait(p, data(i, 60))
				t.must("Free", p.Free())
			} else {
				t.awaitSignal(1)
				t.send(data(i, 60), 1, 2)
			}
		}
	},
}, {
	ID: "mpi/cancel/among-others", Cite: rule("mpi/3.8.4/2", "mpi/3.7.5/3"),
	Title:   "WaitAll over receives of which some were cancelled says which",
	Sends:   "five receives, two cancelled, messages for the rest",
	Expects: "Cancelled of those two, messages in the others",
	Defects: []string{"CancelUntold", "StatusesReversed", "CancelIgnored"}, Run: byRank(func(t *T) {
		t.awaitSignal(1)
		for _, i := range []int{1, 2, 4} {
			t.send(data(i, 40), 1, i)
		}
	}, func(t *T) {
		ps, rs := startReceives(5, func(i int) *pending { return t.irecv(40, 0, i) })
		t.must("Cancel", ps[0].Cancel())
		t.must("Cancel", ps[3].Cancel())
		t.signal(0)
		for i, st := range t.waitAll(rs...) {
			if i == 0 || i == 3 {
				t.check(st.Cancelled, "Cancelled", "%+v", st)
				continue
			}
			t.expectStatus("the receive", st, 0, i, 40)
			t.expectBuffer("the message", ps[i].recvBuf, data(i, 40))
		}
	}),
}}
