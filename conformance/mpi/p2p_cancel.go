package mpi

import "github.com/fabrictest/fabrictest/mpi"

// cancels gives a receive up that cannot have been matched.
func (t *T) cancels(p *pending) {
	t.ok("Cancel", p.Cancel())
	st := t.wait(p)
	t.check(st.Cancelled, "a receive that was cancelled", "%+v", st)
	t.holds("the buffer of a receive that was cancelled", p.room, nil)
}

var cancelCases = []Case{{
	ID: "mpi/cancel/without-a-message", Title: "A receive for which nothing comes can be cancelled, and the wait for it ends",
	Cite: rule("3.8.4", "mpi/3.8.4/1", "mpi/3.8.4/2"), Setup: ranks(1), Defects: []string{"CancelIgnored", "CancelUntold", "CancelFails"},
	Sends: "receives of all kinds, cancelled and waited for", Expects: "that all waits end, with Cancelled set and the buffer as it was",
	Run: func(t *T) {
		t.cancels(t.irecv(10, 0, 1))
		t.cancels(t.irecv(large, 0, mpi.AnyTag))
		t.cancels(t.irecv(10, mpi.AnySource, 1))
		t.cancels(t.irecv(10, mpi.AnySource, mpi.AnyTag))
		p := t.irecv(10, 0, 1)
		t.ok("Cancel", p.Cancel())
		t.until("Test reports a cancelled receive", func() bool {
			st, done, err := p.Test()
			t.ok("Test", err)
			t.check(!done || st.Cancelled, "Cancelled set", "%+v", st)
			return done
		})
		t.stillWorks()
	},
}, {
	ID: "mpi/cancel/message-goes-to-the-next", Title: "A message that comes after a receive was cancelled goes to the next one",
	Cite: rule("3.8.4", "mpi/3.8.4/3"), Defects: []string{"CancelKeepsPosted"},
	Sends: "a receive cancelled, then a message of its envelope", Expects: "the message in a later receive, whole; the old buffer as it was",
	Run: func(t *T) {
		for i, n := range []int{50, large} {
			t.only(1, func() {
				p := t.irecv(n, 0, 2)
				t.cancels(p)
				t.tell(0)
				t.linger()
				t.gets(data(i, n), 0, 2)
				t.holds("the buffer of the cancelled receive", p.room, nil)
			})
			t.only(0, func() {
				t.hear(1)
				t.send(data(i, n), 1, 2)
			})
		}
	},
}, {
	ID: "mpi/cancel/too-late", Title: "A receive that has got its message is not cancelled any more",
	Cite: rule("3.8.4", "mpi/3.8.4/3"), Defects: []string{"CancelsWhatArrived"},
	Sends: "a receive that GetStatus reports complete, then Cancel", Expects: "the message, and Cancelled not set",
	Run: func(t *T) {
		for i, n := range []int{50, large} {
			t.only(0, func() { t.send(data(i, n), 1, 2) })
			t.only(1, func() {
				p := t.irecv(n, 0, 2)
				t.until("the receive is complete", func() bool {
					_, done, err := p.GetStatus()
					t.ok("GetStatus", err)
					return done
				})
				t.ok("Cancel", p.Cancel())
				t.is("the receive", t.arrives(p, data(i, n)), 0, 2, n)
			})
		}
	},
}, {
	ID: "mpi/cancel/race", Title: "A receive that is cancelled while its message comes is either cancelled or has it, never both and never neither",
	Cite: rule("3.8.4", "mpi/3.8.4/3"), Defects: []string{"CancelKeepsPosted", "CancelsWhatArrived"},
	Sends: "40 rounds: a receive, its message under way, and Cancel at some moment; if it was cancelled, another receive", Expects: "the message exactly once in every round",
	Run: func(t *T) {
		for i := range 40 {
			n := []int{16, 3000, 30_000, 100_000}[i%4]
			t.only(0, func() {
				t.hear(1)
				t.send(data(i, n), 1, 2)
			})
			t.only(1, func() {
				p := t.irecv(n, 0, 2)
				t.tell(0)
				for range i / 2 { // so that the message has come further and further
					_, _, err := p.GetStatus()
					t.ok("GetStatus", err)
					t.w.Compute(1000)
				}
				t.ok("Cancel", p.Cancel())
				st := t.wait(p)
				if st.Cancelled {
					t.holds("the buffer of the cancelled receive", p.room, nil)
					t.gets(data(i, n), 0, 2)
					t.holds("the buffer of the cancelled receive, later", p.room, nil)
					return
				}
				t.is("the receive", st, 0, 2, n)
				t.holds("the message", p.room, data(i, n))
			})
		}
		t.only(1, func() { t.seesNothing(mpi.AnySource, mpi.AnyTag) })
		t.stillWorks()
	},
}, {
	ID: "mpi/cancel/buffer-untouched", Title: "The buffer of a cancelled receive is left as it is",
	Cite: rule("3.8.4", "mpi/3.8.4/3"), Defects: []string{"CancelBlanksBuffer", "CancelKeepsPosted"},
	Sends: "a cancelled receive between others of the same envelope, and messages for those", Expects: "nothing in its buffer",
	Run: func(t *T) {
		t.only(1, func() {
			a, b, c := t.irecv(40, 0, 2), t.irecv(40, 0, 2), t.irecv(40, 0, 2)
			t.cancels(b) // only then is it sure: Cancel alone may return before
			t.tell(0)
			t.arrives(a, data(0, 40))
			t.arrives(c, data(1, 40))
			t.holds("its buffer", b.room, nil)
		})
		t.only(0, func() {
			t.hear(1)
			t.send(data(0, 40), 1, 2)
			t.send(data(1, 40), 1, 2)
		})
	},
}, {
	ID: "mpi/cancel/the-right-one", Title: "Only the receive that was meant is cancelled",
	Cite: rule("3.8.4", "mpi/3.8.4/1"), Defects: []string{"CancelsFirst"},
	Sends: "the third of five alike receives cancelled, then four messages", Expects: "the messages in the other four, in order",
	Run: func(t *T) {
		t.only(1, func() {
			var ps []*pending
			for range 5 {
				ps = append(ps, t.irecv(40, 0, 2))
			}
			t.cancels(ps[2])
			t.tell(0)
			for i, k := range []int{0, 1, 3, 4} {
				t.arrives(ps[k], data(i, 40))
			}
		})
		t.only(0, func() {
			t.hear(1)
			for i := range 4 {
				t.send(data(i, 40), 1, 2)
			}
		})
	},
}, {
	ID: "mpi/cancel/persistent", Title: "A persistent receive that was cancelled can be started again",
	Cite: rule("3.8.4", "mpi/3.8.4/4"), Defects: []string{"PersistentOnce", "CancelIgnored"},
	Sends: "start, cancel, wait; start again, and a message", Expects: "Cancelled the first time, the message the second",
	Run: func(t *T) {
		for i := range 3 {
			t.only(1, func() {
				r := newRoom(60)
				req, err := t.RecvInit(r.buf, 0, 2)
				t.begin("RecvInit", req, err)
				t.ok("Start", req.Start())
				t.cancels(&pending{req, r})
				t.ok("Start", req.Start())
				t.tell(0)
				t.arrives(&pending{req, r}, data(i, 60))
				t.ok("Free", req.Free())
			})
			t.only(0, func() {
				t.hear(1)
				t.send(data(i, 60), 1, 2)
			})
		}
	},
}, {
	ID: "mpi/cancel/among-others", Title: "WaitAll over receives of which some were cancelled says which",
	Cite: rule("3.8.4", "mpi/3.8.4/2", "mpi/3.7.5/3"), Defects: []string{"CancelUntold", "StatusesReversed", "CancelIgnored"},
	Sends: "five receives, two cancelled, messages for the rest", Expects: "Cancelled of those two, messages in the others",
	Run: func(t *T) {
		t.only(1, func() {
			var ps []*pending
			var rs []Request
			for i := range 5 {
				ps = append(ps, t.irecv(40, 0, i))
				rs = append(rs, ps[i].Request)
			}
			t.ok("Cancel", ps[0].Cancel())
			t.ok("Cancel", ps[3].Cancel())
			t.tell(0)
			for i, st := range t.waitAll(rs...) {
				if i == 0 || i == 3 {
					t.check(st.Cancelled, "Cancelled", "%+v", st)
					continue
				}
				t.is("the receive", st, 0, i, 40)
				t.holds("the message", ps[i].room, data(i, 40))
			}
		})
		t.only(0, func() {
			t.hear(1)
			for _, i := range []int{1, 2, 4} {
				t.send(data(i, 40), 1, i)
			}
		})
	},
}}
