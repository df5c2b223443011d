package mpi

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi"
)

var requestPrograms = programs{
	"mpi/request/freed-send": byRank(func(t *T) {
		for i, n := range someSizes {
			t.must("Free", t.isend(data(i, n), 1, i).Free())
		}
		t.must("Free", t.issend(data(9, 100), 1, 9).Free())
		t.awaitSignal(1)
	}, func(t *T) {
		t.idle()
		for i, n := range someSizes {
			t.expectRecv(data(i, n), 0, i)
		}
		t.expectRecv(data(9, 100), 0, 9)
		t.signal(0)
	}),
	"mpi/request/freed-receive": byRank(func(t *T) {
		t.awaitSignal(1)
		t.send(data(1, 40), 1, 2)
		t.send(data(2, 40), 1, 2)
	}, func(t *T) {
		p := t.irecv(40, 0, 2)
		t.must("Free", p.Free())
		q := t.irecv(40, 0, 2)
		t.signal(0)
		t.expectWait(q, data(2, 40))
		// Nothing says when a receive is complete whose request is gone.
		t.waitUntil("the freed receive has its message", func() bool {
			result2(t.Iprobe(0, 99))(t, "Iprobe")
			return bytes.Equal(p.recvBuf.buf, data(1, 40))
		})
		t.expectBuffer("the buffer of the receive that was freed", p.recvBuf, data(1, 40))
	}),
	"mpi/request/active": func(t *T) {
		p := t.irecv(10, t.other(), 1)
		t.check(p.Active(), "a new receive to be active", "inactive")
		t.send(data(t.Rank(), 10), t.other(), 1)
		pollUntil(t, "the receive is complete", p.GetStatus)
		t.check(p.Active(), "a complete receive to be active until it is waited for", "inactive")
		t.expectWait(p, data(t.other(), 10))
		t.check(!p.Active(), "the receive not to be active any more", "active")
	},
	"mpi/request/status-is-of-its-own": func(t *T) {
		n, me := t.Size(), t.Rank()
		var rs []Request
		var ps []*pending
		for from := range n {
			ps = append(ps, t.irecv(100, from, mpi.AnyTag))
			rs = append(rs, ps[from].Request)
		}
		for to := range n {
			rs = append(rs, t.isend(data(10*me+to, 20+10*me+to), to, 7*me+to))
		}
		for from, st := range t.waitAll(rs...)[:n] {
			t.expectStatus("the receive", st, from, 7*from+me, 20+10*from+me)
			t.expectBuffer("the message", ps[from].recvBuf, data(10*from+me, 20+10*from+me))
		}
	},
}
