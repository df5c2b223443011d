package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

var selfPrograms = programs{
	"mpi/self/all-sizes": func(t *T) {
		me := t.Rank()
		for i, n := range allSizes() {
			d := data(i, n)
			if i%2 == 0 {
				r := t.isend(d, me, 1)
				t.expectRecv(d, me, 1)
				t.wait(r)
				continue
			}
			p := t.irecv(n, me, 1)
			r := t.isend(d, me, 1)
			t.expectWait(p, d)
			t.wait(r)
		}
	},
	"mpi/self/in-order": func(t *T) {
		rs := startAll(20, func(i int) Request { return t.isend(data(i, someSizes[i%4]), 0, i%2) })
		for tag := 1; tag >= 0; tag-- {
			for i := tag; i < 20; i += 2 {
				t.expectRecv(data(i, someSizes[i%4]), 0, tag)
			}
		}
		t.waitAll(rs...)
	},
	"mpi/self/sendrecv": func(t *T) {
		for i, n := range someSizes {
			r := newGuardedBuf(n)
			st, err := t.Sendrecv(data(i, n), 0, i, r.buf, 0, i)
			t.must("Sendrecv", err)
			t.expectStatus("Sendrecv", st, 0, i, n)
			t.expectBuffer("the message", r, data(i, n))
			b := data(i, n)
			st = result(t.SendrecvReplace(b, 0, i, 0, i))(t, "SendrecvReplace")
			t.expectStatus("SendrecvReplace", st, 0, i, n)
			t.expectEqual("the buffer", b, data(i, n))
		}
	},
	"mpi/self/probed": func(t *T) {
		for i, n := range someSizes {
			r := t.isend(data(i, n), 0, i)
			st := result(t.Probe(mpi.AnySource, mpi.AnyTag))(t, "Probe")
			t.expectStatus("the probe", st, 0, i, n)
			t.expectRecv(data(i, n), 0, i)
			t.wait(r)
		}
	},
	"mpi/self/own-communicator": func(t *T) {
		self := t.inComm(t.w.Self())
		t.check(self.Rank() == 0 && self.Size() == 1, "rank 0 of 1", "%d of %d", self.Rank(), self.Size())
		a := t.isend(data(1, 20), t.Rank(), 1)
		b := self.isend(data(2, 20), 0, 1)
		t.w.Compute(time.Millisecond)
		self.expectRecv(data(2, 20), mpi.AnySource, mpi.AnyTag)
		t.expectRecv(data(1, 20), t.Rank(), 1)
		t.waitAll(a, b)
		self.expectUsable()
	},
}
