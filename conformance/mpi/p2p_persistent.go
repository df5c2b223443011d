package mpi

import "github.com/fabrictest/fabrictest/mpi"

var persistentCases = []Case{{
	ID: "mpi/persistent/again-and-again", Cite: rule("mpi/3.9/1"),
	Title:   "A persistent send and receive can be started as often as one likes, at any size",
	Sends:   "for each size, ten rounds with other contents",
	Expects: "the contents of each round",
	Defects: []string{"PersistentOnce"}, Run: func(t *T) {
		for k, n := range someSizes {
			buf := newGuardedBuf(n)
			create := []func([]byte, int, int) (Request, error){t.SendInit, t.RecvInit}[t.Rank()]
			r := started(create(buf.buf, t.other(), k))(t, "an Init")
			for i := range 10 {
				if t.Rank() == 0 {
					copy(buf.buf, data(100*k+i, n))
					t.start(r)
					t.wait(r)
					clear(buf.buf)
					continue
				}
				t.start(r)
				t.expectStatus("the receive", t.expectWait(&pending{r, buf}, data(100*k+i, n)), 0, k, n)
			}
			t.must("Free", r.Free())
		}
	},
}, {
	ID: "mpi/persistent/inactive-at-first", Cite: rule("mpi/3.9/2"),
	Title:   "A persistent request does nothing before it is started",
	Sends:   "a send and a receive made and not started; the receiver looks for a message, the sender sends another",
	Expects: "no message of the former; the latter in another receive",
	Defects: []string{"InitStarts"}, Run: byRank(func(t *T) {
		r := started(t.SendInit(data(1, 30), 1, 5))(t, "SendInit")
		t.check(!r.Active(), "a new persistent request not to be active", "active")
		t.signal(1)
		t.awaitSignal(1)
		t.send(data(2, 30), 1, 6)
		t.must("Free", r.Free())
	}, func(t *T) {
		t.awaitSignal(0)
		t.expectNoMessage(0, 5)
		p := t.recvInit(30, 0, 6)
		t.signal(0)
		t.expectRecv(data(2, 30), 0, 6)
		t.expectBuffer("the buffer of a receive that was not started", p.recvBuf, nil)
		t.must("Free", p.Free())
	}),
}, {
	ID: "mpi/persistent/inactive-waits", Cite: rule("mpi/3.7.3/2"), Setup: ranks(1),
	Title:   "Wait and Test of an inactive request return at once with an empty status",
	Sends:   "Wait and Test of persistent requests before they are started and after they were waited for, and of an Irecv likewise",
	Expects: "no waiting; source and tag any, count 0, not cancelled",
	Defects: []string{"InactiveHangs", "InactiveKeepsStatus", "InactiveTestsFalse"}, Run: func(t *T) {
		nothing := func(r Request) {
			t.check(!r.Active(), "an inactive request", "active")
			st := result(r.Wait())(t, "Wait")
			t.check(st == empty, "an empty status of Wait", "%+v", st)
			st, done := result2(r.Test())(t, "Test")
			t.check(done && st == empty, "true and an empty status of Test", "%v %+v", done, st)
		}
		r := t.recvInit(20, 0, 5)
		nothing(r)
		for i := range 2 {
			t.start(r)
			s := t.isend(data(i, 20), 0, 5)
			t.expectWait(r, data(i, 20))
			nothing(r)
			t.wait(s)
			nothing(s)
		}
		p := t.irecv(4, 0, 1)
		s := t.isend(data(9, 4), 0, 1)
		t.expectWait(p, data(9, 4))
		nothing(p)
		t.wait(s)
	},
}, {
	ID: "mpi/persistent/content-of-the-start", Cite: rule("mpi/3.9/3"),
	Title:   "A persistent send sends what is in its buffer when it is started",
	Sends:   "a buffer filled after the request was made, and before each start",
	Expects: "the contents of the starts",
	Defects: []string{"InitCopies"}, Run: byRank(func(t *T) {
		b := data(99, 500)
		r := started(t.SendInit(b, 1, 1))(t, "SendInit")
		for i := range 4 {
			copy(b, data(i, 500))
			t.start(r)
			t.wait(r)
		}
	}, func(t *T) {
		for i := range 4 {
			t.expectRecv(data(i, 500), 0, 1)
		}
	}),
}, {
	ID: "mpi/persistent/synchronous", Cite: rule("mpi/3.9/4", "mpi/3.4/1"),
	Title:   "A persistent synchronous send waits for its receive in every round",
	Sends:   "two rounds: start, a conversation, the receive",
	Expects: "not complete before the receive",
	Defects: []string{"SyncEarly", "SyncOnArrival"}, Run: byRank(func(t *T) {
		b := make([]byte, 100)
		r := started(t.SsendInit(b, 1, 1))(t, "SsendInit")
		for i := range 2 {
			copy(b, data(i, 100))
			t.start(r)
			t.signal(1)
			t.awaitSignal(1)
			t.expectPending("a synchronous send without a receive", r)
			t.signal(1)
			t.wait(r)
		}
	}, func(t *T) {
		for i := range 2 {
			t.awaitSignal(0)
			t.idle()
			t.signal(0)
			t.awaitSignal(0)
			t.expectRecv(data(i, 100), 0, 1)
		}
	}),
}, {
	ID: "mpi/persistent/buffered-and-ready", Cite: rule("mpi/3.9/4"),
	Title:   "Persistent buffered and ready sends are what their modes are",
	Sends:   "a buffered send that is complete before its receive is posted, then a ready one whose receive is posted, three rounds",
	Expects: "that the former does not wait, and both contents",
	Defects: []string{"BufferedWaits", "ReadyEmpty", "ReadyLost"}, Run: byRank(func(t *T) {
		t.must("AttachBuffer", t.w.AttachBuffer(8192))
		b, d := make([]byte, 700), make([]byte, 700)
		buffered := started(t.BsendInit(b, 1, 1))(t, "BsendInit")
		ready := started(t.RsendInit(d, 1, 2))(t, "RsendInit")
		for i := range 3 {
			copy(b, data(i, 700))
			copy(d, data(10+i, 700))
			t.start(buffered)
			t.wait(buffered)
			clear(b)
			t.signal(1)
			t.awaitSignal(1)
			t.start(ready)
			t.wait(ready)
		}
		t.must("DetachBuffer", t.w.DetachBuffer())
	}, func(t *T) {
		for i := range 3 {
			t.awaitSignal(0)
			p := t.irecv(700, 0, 2)
			t.expectRecv(data(i, 700), 0, 1)
			t.signal(0)
			t.expectWait(p, data(10+i, 700))
		}
	}),
}, {
	ID: "mpi/persistent/start-all", Cite: rule("mpi/3.9/5"), Setup: ranks(4),
	Title:   "StartAll starts all of its requests",
	Sends:   "persistent sends and receives between all ranks, started together, five rounds",
	Expects: "all contents in every round",
	Defects: []string{"StartAllMissesLast"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		const size = 3000
		out := startAll(n, func(int) []byte { return make([]byte, size) })
		in, rs := startReceives(n, func(k int) *pending { return t.recvInit(size, k, 1) })
		for k := range n {
			rs = append(rs, started(t.SendInit(out[k], k, 1))(t, "SendInit"))
		}
		for round := range 5 {
			for k := range n {
				copy(out[k], data(100*round+10*me+k, size))
			}
			t.must("StartAll", t.w.StartAll(rs))
			t.waitAll(rs...)
			for k := range n {
				t.expectBuffer("the message", in[k].recvBuf, data(100*round+10*k+me, size))
			}
		}
	},
}, {
	ID: "mpi/persistent/with-others", Cite: rule("mpi/3.9/6"),
	Title:   "Persistent requests match those that are not",
	Sends:   "a persistent send to Recv, and Send to a persistent receive, both ways",
	Expects: "the contents",
	Defects: []string{"PersistentOnce", "MiddleDamaged"}, Run: func(t *T) {
		b := make([]byte, 200)
		send := started(t.SendInit(b, t.other(), 1))(t, "SendInit")
		recv := t.recvInit(200, t.other(), 2)
		for i := range 4 {
			copy(b, data(10*i+t.Rank(), 200))
			t.start(send)
			t.expectRecv(data(10*i+t.other(), 200), t.other(), 1)
			t.wait(send)
			t.start(recv)
			t.send(data(100+10*i+t.Rank(), 200), t.other(), 2)
			t.expectWait(recv, data(100+10*i+t.other(), 200))
		}
	},
}, {
	ID: "mpi/persistent/start-of-what-is-active", Cite: rule("mpi/3.9/7"),
	Title:   "A request that is active cannot be started",
	Sends:   "Start of a persistent receive that is under way",
	Expects: "ErrRequest; the receive goes on",
	Defects: []string{"ActiveStarts"}, Run: func(t *T) {
		r := t.recvInit(50, t.other(), 1)
		t.start(r)
		t.mustFail("Start of what is active", r.Start(), mpi.ErrRequest)
		t.send(data(t.Rank(), 50), t.other(), 1)
		t.expectWait(r, data(t.other(), 50))
		t.start(r)
		t.send(data(10+t.Rank(), 50), t.other(), 1)
		t.expectWait(r, data(10+t.other(), 50))
	},
}, {
	ID: "mpi/persistent/start-of-others", Cite: rule("mpi/3.9/7"), Setup: ranks(1),
	Title:   "A request that is not persistent cannot be started",
	Sends:   "Start of an Irecv before and after its message",
	Expects: "ErrRequest",
	Defects: []string{"PlainStarts"}, Run: func(t *T) {
		p := t.irecv(10, 0, 1)
		t.mustFail("Start", p.Start(), mpi.ErrRequest)
		r := t.isend(data(1, 10), 0, 1)
		t.expectWait(p, data(1, 10))
		t.wait(r)
		t.mustFail("Start", p.Start(), mpi.ErrRequest)
		t.expectUsable()
	},
}, {
	ID: "mpi/persistent/wildcards", Cite: rule("mpi/3.9/1", "mpi/3.2.5/1"), Setup: ranks(3),
	Title:   "Each round of a persistent receive with wildcards tells of its own message",
	Sends:   "one receive of anything, started for messages of two ranks by turns",
	Expects: "source, tag, count and content of each",
	Defects: []string{"WildSourceUntold", "WildTagUntold", "PersistentOnce"}, Run: func(t *T) {
		if t.Rank() > 0 {
			for i := range 4 {
				t.awaitSignal(0)
				t.send(data(10*t.Rank()+i, 5*t.Rank()+i), 0, 100*t.Rank()+i)
			}
			return
		}
		r := t.recvInit(100, mpi.AnySource, mpi.AnyTag)
		for i := range 4 {
			for from := 1; from <= 2; from++ {
				t.start(r)
				t.signal(from)
				st := t.wait(r)
				t.expectStatus("the receive", st, from, 100*from+i, 5*from+i)
				t.expectEqual("the message", r.recvBuf.buf[:st.Count], data(10*from+i, st.Count))
			}
		}
	},
}, {
	ID: "mpi/persistent/freed", Cite: rule("mpi/3.9/8"), Setup: ranks(1),
	Title:   "A persistent request that was freed cannot be started",
	Sends:   "Free of an inactive request, then Start",
	Expects: "an error, and everything else goes on",
	Defects: []string{"ErrorsWithoutClass", "ErrorWedges"}, Run: func(t *T) {
		r := started(t.SendInit(data(1, 8), 0, 1))(t, "SendInit")
		t.must("Free", r.Free())
		t.mustFail("Start", r.Start(), mpi.ErrRequest)
		t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
		t.expectUsable()
	},
}}
