package mpi

import (
	"errors"

	"github.com/fabrictest/fabrictest/mpi"
)

var persistentPrograms = programs{
	"mpi/persistent/again-and-again": func(t *T) {
		for k, n := range someSizes {
			buf := newGuardedBuf(n)
			var r Request
			var err error
			if t.Rank() == 0 {
				r, err = t.SendInit(buf.buf, 1, k)
			} else {
				r, err = t.RecvInit(buf.buf, 0, k)
			}
			t.mustStart("an Init", r, err)
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
	"mpi/persistent/inactive-at-first": func(t *T) {
		t.onRank(0, func() {
			r, err := t.SendInit(data(1, 30), 1, 5)
			t.mustStart("SendInit", r, err)
			t.check(!r.Active(), "a new persistent request not to be active", "active")
			t.signal(1)
			t.awaitSignal(1)
			t.send(data(2, 30), 1, 6)
			t.must("Free", r.Free())
		})
		t.onRank(1, func() {
			t.awaitSignal(0)
			t.expectNoMessage(0, 5)
			room := newGuardedBuf(30)
			r, err := t.RecvInit(room.buf, 0, 6)
			t.mustStart("RecvInit", r, err)
			t.signal(0)
			t.expectRecv(data(2, 30), 0, 6)
			t.expectBuffer("the buffer of a receive that was not started", room, nil)
			t.must("Free", r.Free())
		})
	},
	"mpi/persistent/inactive-waits": func(t *T) {
		nothing := func(r Request) {
			t.check(!r.Active(), "an inactive request", "active")
			st, err := r.Wait()
			t.must("Wait", err)
			t.check(st == empty, "an empty status of Wait", "%+v", st)
			st, done, err := r.Test()
			t.must("Test", err)
			t.check(done && st == empty, "true and an empty status of Test", "%v %+v", done, st)
		}
		room := newGuardedBuf(20)
		r, err := t.RecvInit(room.buf, 0, 5)
		t.mustStart("RecvInit", r, err)
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
	"mpi/persistent/content-of-the-start": func(t *T) {
		t.onRank(0, func() {
			b := data(99, 500)
			r, err := t.SendInit(b, 1, 1)
			t.mustStart("SendInit", r, err)
			for i := range 4 {
				copy(b, data(i, 500))
				t.must("Start", r.Start())
				t.wait(r)
			}
		})
		t.onRank(1, func() {
			for i := range 4 {
				t.expectRecv(data(i, 500), 0, 1)
			}
		})
	},
	"mpi/persistent/synchronous": func(t *T) {
		t.onRank(0, func() {
			b := make([]byte, 100)
			r, err := t.SsendInit(b, 1, 1)
			t.mustStart("SsendInit", r, err)
			for i := range 2 {
				copy(b, data(i, 100))
				t.must("Start", r.Start())
				t.signal(1)
				t.awaitSignal(1)
				t.expectPending("a synchronous send without a receive", r)
				t.signal(1)
				t.wait(r)
			}
		})
		t.onRank(1, func() {
			for i := range 2 {
				t.awaitSignal(0)
				t.idle()
				t.signal(0)
				t.awaitSignal(0)
				t.expectRecv(data(i, 100), 0, 1)
			}
		})
	},
	"mpi/persistent/buffered-and-ready": func(t *T) {
		t.onRank(0, func() {
			t.must("AttachBuffer", t.w.AttachBuffer(8192))
			b, d := make([]byte, 700), make([]byte, 700)
			buffered, err := t.BsendInit(b, 1, 1)
			t.mustStart("BsendInit", buffered, err)
			ready, err := t.RsendInit(d, 1, 2)
			t.mustStart("RsendInit", ready, err)
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
		})
		t.onRank(1, func() {
			for i := range 3 {
				t.awaitSignal(0)
				p := t.irecv(700, 0, 2)
				t.expectRecv(data(i, 700), 0, 1)
				t.signal(0)
				t.expectWait(p, data(10+i, 700))
			}
		})
	},
	"mpi/persistent/start-all": func(t *T) {
		n, me := t.Size(), t.Rank()
		size := 3000
		var rs []Request
		out, in := make([][]byte, n), make([]*guardedBuf, n)
		for k := range n {
			in[k], out[k] = newGuardedBuf(size), make([]byte, size)
			r, err := t.RecvInit(in[k].buf, k, 1)
			rs = append(rs, t.mustStart("RecvInit", r, err))
		}
		for k := range n {
			r, err := t.SendInit(out[k], k, 1)
			rs = append(rs, t.mustStart("SendInit", r, err))
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
		other := 1 - t.Rank()
		b, in := make([]byte, 200), newGuardedBuf(200)
		send, err := t.SendInit(b, other, 1)
		t.mustStart("SendInit", send, err)
		recv, err := t.RecvInit(in.buf, other, 2)
		t.mustStart("RecvInit", recv, err)
		for i := range 4 {
			copy(b, data(10*i+t.Rank(), 200))
			t.must("Start", send.Start())
			t.expectRecv(data(10*i+other, 200), other, 1)
			t.wait(send)
			t.must("Start", recv.Start())
			t.send(data(100+10*i+t.Rank(), 200), other, 2)
			t.expectWait(&pending{recv, in}, data(100+10*i+other, 200))
		}
	},
	"mpi/persistent/start-of-what-is-active": func(t *T) {
		other := 1 - t.Rank()
		room := newGuardedBuf(50)
		r, err := t.RecvInit(room.buf, other, 1)
		t.mustStart("RecvInit", r, err)
		t.must("Start", r.Start())
		t.mustFail("Start of what is active", r.Start(), mpi.ErrRequest)
		t.send(data(t.Rank(), 50), other, 1)
		t.expectWait(&pending{r, room}, data(other, 50))
		t.must("Start", r.Start())
		t.send(data(10+t.Rank(), 50), other, 1)
		t.expectWait(&pending{r, room}, data(10+other, 50))
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
		r, err := t.RecvInit(room.buf, mpi.AnySource, mpi.AnyTag)
		t.mustStart("RecvInit", r, err)
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
		r, err := t.SendInit(data(1, 8), 0, 1)
		t.mustStart("SendInit", r, err)
		t.must("Free", r.Free())
		err = r.Start()
		t.check(errors.Is(err, mpi.ErrRequest), "ErrRequest of Start", "%v", err)
		t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
		t.expectUsable()
	},
}
