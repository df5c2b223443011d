package mpi

import "github.com/fabrictest/fabrictest/mpi"

var persistentPrograms = programs{
	"mpi/persistent/again-and-again": func(t *T) {
		for k, n := range someSizes {
			buf := newGuardedBuf(n)
			create := []func([]byte, int, int) (Request, error){t.SendInit, t.RecvInit}[t.Rank()]
			r := started(create(buf.buf, t.other(), k))(t, "an Init")
			for i := range 10 {
				if t.Rank() == 0 {
					copy(buf.buf, data(100*k+i, n))
					t.must("Start", r.Start())
					t.wait(r)
					clear(buf.buf)
					continue
				}
				t.must("Start", r.Start())
				t.expectStatus("the receive", t.expectWait(&pending{r, buf}, data(100*k+i, n)), 0, k, n)
			}
			t.must("Free", r.Free())
		}
	},
	"mpi/persistent/inactive-at-first": byRank(func(t *T) {
		r := started(t.SendInit(data(1, 30), 1, 5))(t, "SendInit")
		t.check(!r.Active(), "a new persistent request not to be active", "active")
		t.signal(1)
		t.awaitSignal(1)
		t.send(data(2, 30), 1, 6)
		t.must("Free", r.Free())
	}, func(t *T) {
		t.awaitSignal(0)
		t.expectNoMessage(0, 5)
		room := newGuardedBuf(30)
		r := started(t.RecvInit(room.buf, 0, 6))(t, "RecvInit")
		t.signal(0)
		t.expectRecv(data(2, 30), 0, 6)
		t.expectBuffer("the buffer of a receive that was not started", room, nil)
		t.must("Free", r.Free())
	}),
	"mpi/persistent/inactive-waits": func(t *T) {
		nothing := func(r Request) {
			t.check(!r.Active(), "an inactive request", "active")
			st := result(r.Wait())(t, "Wait")
			t.check(st == empty, "an empty status of Wait", "%+v", st)
			st, done := result2(r.Test())(t, "Test")
			t.check(done && st == empty, "true and an empty status of Test", "%v %+v", done, st)
		}
		room := newGuardedBuf(20)
		r := started(t.RecvInit(room.buf, 0, 5))(t, "RecvInit")
		nothing(r)
		for i := range 2 {
			t.must("Start", r.Start())
			s := t.isend(data(i, 20), 0, 5)
			t.expectWait(&pending{r, room}, data(i, 20))
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
	"mpi/persistent/content-of-the-start": byRank(func(t *T) {
		b := data(99, 500)
		r := started(t.SendInit(b, 1, 1))(t, "SendInit")
		for i := range 4 {
			copy(b, data(i, 500))
			t.must("Start", r.Start())
			t.wait(r)
		}
	}, func(t *T) {
		for i := range 4 {
			t.expectRecv(data(i, 500), 0, 1)
		}
	}),
	"mpi/persistent/synchronous": byRank(func(t *T) {
		b := make([]byte, 100)
		r := started(t.SsendInit(b, 1, 1))(t, "SsendInit")
		for i := range 2 {
			copy(b, data(i, 100))
			t.must("Start", r.Start())
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
	"mpi/persistent/buffered-and-ready": byRank(func(t *T) {
		t.must("AttachBuffer", t.w.AttachBuffer(8192))
		b, d := make([]byte, 700), make([]byte, 700)
		buffered := started(t.BsendInit(b, 1, 1))(t, "BsendInit")
		ready := started(t.RsendInit(d, 1, 2))(t, "RsendInit")
		for i := range 3 {
			copy(b, data(i, 700))
			copy(d, data(10+i, 700))
			t.must("Start", buffered.Start())
			t.wait(buffered)
			clear(b)
			t.signal(1)
			t.awaitSignal(1)
			t.must("Start", ready.Start())
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
	"mpi/persistent/start-all": func(t *T) {
		n, me := t.Size(), t.Rank()
		size := 3000
		var rs []Request
		out, in := make([][]byte, n), make([]*guardedBuf, n)
		for k := range n {
			in[k], out[k] = newGuardedBuf(size), make([]byte, size)
			rs = append(rs, started(t.RecvInit(in[k].buf, k, 1))(t, "RecvInit"))
		}
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
				t.expectBuffer("the message", in[k], data(100*round+10*k+me, size))
			}
		}
	},
	"mpi/persistent/with-others": func(t *T) {
		b, in := make([]byte, 200), newGuardedBuf(200)
		send := started(t.SendInit(b, t.other(), 1))(t, "SendInit")
		recv := started(t.RecvInit(in.buf, t.other(), 2))(t, "RecvInit")
		for i := range 4 {
			copy(b, data(10*i+t.Rank(), 200))
			t.must("Start", send.Start())
			t.expectRecv(data(10*i+t.other(), 200), t.other(), 1)
			t.wait(send)
			t.must("Start", recv.Start())
			t.send(data(100+10*i+t.Rank(), 200), t.other(), 2)
			t.expectWait(&pending{recv, in}, data(100+10*i+t.other(), 200))
		}
	},
	"mpi/persistent/start-of-what-is-active": func(t *T) {
		room := newGuardedBuf(50)
		r := started(t.RecvInit(room.buf, t.other(), 1))(t, "RecvInit")
		t.must("Start", r.Start())
		t.mustFail("Start of what is active", r.Start(), mpi.ErrRequest)
		t.send(data(t.Rank(), 50), t.other(), 1)
		t.expectWait(&pending{r, room}, data(t.other(), 50))
		t.must("Start", r.Start())
		t.send(data(10+t.Rank(), 50), t.other(), 1)
		t.expectWait(&pending{r, room}, data(10+t.other(), 50))
	},
	"mpi/persistent/start-of-others": func(t *T) {
		p := t.irecv(10, 0, 1)
		t.mustFail("Start", p.Start(), mpi.ErrRequest)
		r := t.isend(data(1, 10), 0, 1)
		t.expectWait(p, data(1, 10))
		t.wait(r)
		t.mustFail("Start", p.Start(), mpi.ErrRequest)
		t.expectUsable()
	},
	"mpi/persistent/wildcards": func(t *T) {
		if t.Rank() > 0 {
			for i := range 4 {
				t.awaitSignal(0)
				t.send(data(10*t.Rank()+i, 5*t.Rank()+i), 0, 100*t.Rank()+i)
			}
			return
		}
		room := newGuardedBuf(100)
		r := started(t.RecvInit(room.buf, mpi.AnySource, mpi.AnyTag))(t, "RecvInit")
		for i := range 4 {
			for from := 1; from <= 2; from++ {
				t.must("Start", r.Start())
				t.signal(from)
				st := t.wait(r)
				t.expectStatus("the receive", st, from, 100*from+i, 5*from+i)
				t.expectEqual("the message", room.buf[:st.Count], data(10*from+i, st.Count))
			}
		}
	},
	"mpi/persistent/freed": func(t *T) {
		r := started(t.SendInit(data(1, 8), 0, 1))(t, "SendInit")
		t.must("Free", r.Free())
		t.mustFail("Start", r.Start(), mpi.ErrRequest)
		t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
		t.expectUsable()
	},
}
