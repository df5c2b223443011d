package mpi

import (
	"errors"

	"github.com/fabrictest/fabrictest/mpi"
)

var persistentCases = []Case{{
	ID: "mpi/persistent/again-and-again", Title: "A persistent send and receive can be started as often as one likes, at any size",
	Cite: rule("3.9", "mpi/3.9/1"), Defects: []string{"PersistentOnce"},
	Sends: "for each size, ten rounds with other contents", Expects: "the contents of each round",
	Run: func(t *T) {
		for k, n := range few {
			buf := newRoom(n)
			var r Request
			var err error
			if t.Rank() == 0 {
				r, err = t.SendInit(buf.buf, 1, k)
			} else {
				r, err = t.RecvInit(buf.buf, 0, k)
			}
			t.begin("an Init", r, err)
			for i := range 10 {
				if t.Rank() == 0 {
					copy(buf.buf, data(100*k+i, n))
					t.ok("Start", r.Start())
					t.wait(r)
					clear(buf.buf)
					continue
				}
				t.ok("Start", r.Start())
				t.is("the receive", t.arrives(&pending{r, buf}, data(100*k+i, n)), 0, k, n)
			}
			t.ok("Free", r.Free())
		}
	},
}, {
	ID: "mpi/persistent/inactive-at-first", Title: "A persistent request does nothing before it is started",
	Cite: rule("3.9", "mpi/3.9/2"), Defects: []string{"InitStarts"},
	Sends: "a send and a receive made and not started; the receiver looks for a message, the sender sends another", Expects: "no message of the former; the latter in another receive",
	Run: func(t *T) {
		t.only(0, func() {
			r, err := t.SendInit(data(1, 30), 1, 5)
			t.begin("SendInit", r, err)
			t.check(!r.Active(), "a new persistent request not to be active", "active")
			t.tell(1)
			t.hear(1)
			t.send(data(2, 30), 1, 6)
			t.ok("Free", r.Free())
		})
		t.only(1, func() {
			t.hear(0)
			t.seesNothing(0, 5)
			room := newRoom(30)
			r, err := t.RecvInit(room.buf, 0, 6)
			t.begin("RecvInit", r, err)
			t.tell(0)
			t.gets(data(2, 30), 0, 6)
			t.holds("the buffer of a receive that was not started", room, nil)
			t.ok("Free", r.Free())
		})
	},
}, {
	ID: "mpi/persistent/inactive-waits", Title: "Wait and Test of an inactive request return at once with an empty status",
	Cite: rule("3.7.3", "mpi/3.7.3/2"), Setup: ranks(1), Defects: []string{"InactiveHangs", "InactiveKeepsStatus", "InactiveTestsFalse"},
	Sends: "Wait and Test of persistent requests before they are started and after they were waited for, and of an Irecv likewise", Expects: "no waiting; source and tag any, count 0, not cancelled",
	Run: func(t *T) {
		nothing := func(r Request) {
			t.check(!r.Active(), "an inactive request", "active")
			st, err := r.Wait()
			t.ok("Wait", err)
			t.check(st == empty, "an empty status of Wait", "%+v", st)
			st, done, err := r.Test()
			t.ok("Test", err)
			t.check(done && st == empty, "true and an empty status of Test", "%v %+v", done, st)
		}
		room := newRoom(20)
		r, err := t.RecvInit(room.buf, 0, 5)
		t.begin("RecvInit", r, err)
		nothing(r)
		for i := range 2 {
			t.ok("Start", r.Start())
			s := t.isend(data(i, 20), 0, 5)
			t.arrives(&pending{r, room}, data(i, 20))
			nothing(r)
			t.wait(s)
			nothing(s)
		}
		p := t.irecv(4, 0, 1)
		s := t.isend(data(9, 4), 0, 1)
		t.arrives(p, data(9, 4))
		nothing(p)
		t.wait(s)
	},
}, {
	ID: "mpi/persistent/content-of-the-start", Title: "A persistent send sends what is in its buffer when it is started",
	Cite: rule("3.9", "mpi/3.9/3"), Defects: []string{"InitCopies"},
	Sends: "a buffer filled after the request was made, and before each start", Expects: "the contents of the starts",
	Run: func(t *T) {
		t.only(0, func() {
			b := data(99, 500)
			r, err := t.SendInit(b, 1, 1)
			t.begin("SendInit", r, err)
			for i := range 4 {
				copy(b, data(i, 500))
				t.ok("Start", r.Start())
				t.wait(r)
			}
		})
		t.only(1, func() {
			for i := range 4 {
				t.gets(data(i, 500), 0, 1)
			}
		})
	},
}, {
	ID: "mpi/persistent/synchronous", Title: "A persistent synchronous send waits for its receive in every round",
	Cite: rule("3.9", "mpi/3.9/4", "mpi/3.4/1"), Defects: []string{"SyncEarly", "SyncOnArrival"},
	Sends: "two rounds: start, a conversation, the receive", Expects: "not complete before the receive",
	Run: func(t *T) {
		t.only(0, func() {
			b := make([]byte, 100)
			r, err := t.SsendInit(b, 1, 1)
			t.begin("SsendInit", r, err)
			for i := range 2 {
				copy(b, data(i, 100))
				t.ok("Start", r.Start())
				t.tell(1)
				t.hear(1)
				t.pendingYet("a synchronous send without a receive", r)
				t.tell(1)
				t.wait(r)
			}
		})
		t.only(1, func() {
			for i := range 2 {
				t.hear(0)
				t.linger()
				t.tell(0)
				t.hear(0)
				t.gets(data(i, 100), 0, 1)
			}
		})
	},
}, {
	ID: "mpi/persistent/buffered-and-ready", Title: "Persistent buffered and ready sends are what their modes are",
	Cite: rule("3.9", "mpi/3.9/4"), Defects: []string{"BufferedWaits", "ReadyEmpty", "ReadyLost"},
	Sends:   "a buffered send that is complete before its receive is posted, then a ready one whose receive is posted, three rounds",
	Expects: "that the former does not wait, and both contents",
	Run: func(t *T) {
		t.only(0, func() {
			t.ok("AttachBuffer", t.w.AttachBuffer(8192))
			b, d := make([]byte, 700), make([]byte, 700)
			buffered, err := t.BsendInit(b, 1, 1)
			t.begin("BsendInit", buffered, err)
			ready, err := t.RsendInit(d, 1, 2)
			t.begin("RsendInit", ready, err)
			for i := range 3 {
				copy(b, data(i, 700))
				copy(d, data(10+i, 700))
				t.ok("Start", buffered.Start())
				t.wait(buffered)
				clear(b)
				t.tell(1)
				t.hear(1)
				t.ok("Start", ready.Start())
				t.wait(ready)
			}
			t.ok("DetachBuffer", t.w.DetachBuffer())
		})
		t.only(1, func() {
			for i := range 3 {
				t.hear(0)
				p := t.irecv(700, 0, 2)
				t.gets(data(i, 700), 0, 1)
				t.tell(0)
				t.arrives(p, data(10+i, 700))
			}
		})
	},
}, {
	ID: "mpi/persistent/start-all", Title: "StartAll starts all of its requests",
	Cite: rule("3.9", "mpi/3.9/5"), Setup: ranks(4), Defects: []string{"StartAllMissesLast"},
	Sends: "persistent sends and receives between all ranks, started together, five rounds", Expects: "all contents in every round",
	Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		size := 3000
		var rs []Request
		out, in := make([][]byte, n), make([]*room, n)
		for k := range n {
			in[k], out[k] = newRoom(size), make([]byte, size)
			r, err := t.RecvInit(in[k].buf, k, 1)
			rs = append(rs, t.begin("RecvInit", r, err))
		}
		for k := range n {
			r, err := t.SendInit(out[k], k, 1)
			rs = append(rs, t.begin("SendInit", r, err))
		}
		for round := range 5 {
			for k := range n {
				copy(out[k], data(100*round+10*me+k, size))
			}
			t.ok("StartAll", t.w.StartAll(rs))
			t.waitAll(rs...)
			for k := range n {
				t.holds("the message", in[k], data(100*round+10*k+me, size))
			}
		}
	},
}, {
	ID: "mpi/persistent/with-others", Title: "Persistent requests match those that are not",
	Cite: rule("3.9", "mpi/3.9/6"), Defects: []string{"PersistentOnce", "MiddleDamaged"},
	Sends: "a persistent send to Recv, and Send to a persistent receive, both ways", Expects: "the contents",
	Run: func(t *T) {
		other := 1 - t.Rank()
		b, in := make([]byte, 200), newRoom(200)
		send, err := t.SendInit(b, other, 1)
		t.begin("SendInit", send, err)
		recv, err := t.RecvInit(in.buf, other, 2)
		t.begin("RecvInit", recv, err)
		for i := range 4 {
			copy(b, data(10*i+t.Rank(), 200))
			t.ok("Start", send.Start())
			t.gets(data(10*i+other, 200), other, 1)
			t.wait(send)
			t.ok("Start", recv.Start())
			t.send(data(100+10*i+t.Rank(), 200), other, 2)
			t.arrives(&pending{recv, in}, data(100+10*i+other, 200))
		}
	},
}, {
	ID: "mpi/persistent/start-of-what-is-active", Title: "A request that is active cannot be started",
	Cite: rule("3.9", "mpi/3.9/7"), Defects: []string{"ActiveStarts"},
	Sends: "Start of a persistent receive that is under way", Expects: "ErrRequest; the receive goes on",
	Run: func(t *T) {
		other := 1 - t.Rank()
		room := newRoom(50)
		r, err := t.RecvInit(room.buf, other, 1)
		t.begin("RecvInit", r, err)
		t.ok("Start", r.Start())
		t.fails("Start of what is active", r.Start(), mpi.ErrRequest)
		t.send(data(t.Rank(), 50), other, 1)
		t.arrives(&pending{r, room}, data(other, 50))
		t.ok("Start", r.Start())
		t.send(data(10+t.Rank(), 50), other, 1)
		t.arrives(&pending{r, room}, data(10+other, 50))
	},
}, {
	ID: "mpi/persistent/start-of-others", Title: "A request that is not persistent cannot be started",
	Cite: rule("3.9", "mpi/3.9/7"), Setup: ranks(1), Defects: []string{"PlainStarts"},
	Sends: "Start of an Irecv before and after its message", Expects: "ErrRequest",
	Run: func(t *T) {
		p := t.irecv(10, 0, 1)
		t.fails("Start", p.Start(), mpi.ErrRequest)
		r := t.isend(data(1, 10), 0, 1)
		t.arrives(p, data(1, 10))
		t.wait(r)
		t.fails("Start", p.Start(), mpi.ErrRequest)
		t.stillWorks()
	},
}, {
	ID: "mpi/persistent/wildcards", Title: "Each round of a persistent receive with wildcards tells of its own message",
	Cite: rule("3.9", "mpi/3.9/1", "mpi/3.2.5/1"), Setup: ranks(3), Defects: []string{"WildSourceUntold", "WildTagUntold", "PersistentOnce"},
	Sends: "one receive of anything, started for messages of two ranks by turns", Expects: "source, tag, count and content of each",
	Run: func(t *T) {
		if t.Rank() > 0 {
			for i := range 4 {
				t.hear(0)
				t.send(data(10*t.Rank()+i, 5*t.Rank()+i), 0, 100*t.Rank()+i)
			}
			return
		}
		room := newRoom(100)
		r, err := t.RecvInit(room.buf, mpi.AnySource, mpi.AnyTag)
		t.begin("RecvInit", r, err)
		for i := range 4 {
			for from := 1; from <= 2; from++ {
				t.ok("Start", r.Start())
				t.tell(from)
				st := t.wait(r)
				t.is("the receive", st, from, 100*from+i, 5*from+i)
				t.same("the message", room.buf[:st.Count], data(10*from+i, st.Count))
			}
		}
	},
}, {
	ID: "mpi/persistent/freed", Title: "A persistent request that was freed cannot be started",
	Cite: rule("3.9", "mpi/3.9/8"), Setup: ranks(1), Defects: []string{"ErrorsWithoutClass", "ErrorWedges"},
	Sends: "Free of an inactive request, then Start", Expects: "an error, and everything else goes on",
	Run: func(t *T) {
		r, err := t.SendInit(data(1, 8), 0, 1)
		t.begin("SendInit", r, err)
		t.ok("Free", r.Free())
		err = r.Start()
		t.check(errors.Is(err, mpi.ErrRequest), "ErrRequest of Start", "%v", err)
		t.seesNothing(mpi.AnySource, mpi.AnyTag)
		t.stillWorks()
	},
}}
