package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// spins is how often a rank may ask without a pause before something must have come.
const spins = 2_000_000

var progressPrograms = programs{
	"mpi/progress/test-alone": func(t *T) {
		for i, n := range someSizes {
			t.onRank(0, func() { t.send(data(i, n), 1, 1) })
			t.onRank(1, func() {
				p := t.irecv(n, 0, 1)
				for range spins {
					st, done := result2(p.Test())(t, "Test")
					if done {
						t.expectStatus("the receive", st, 0, 1, n)
						t.expectBuffer("the message", p.recvBuf, data(i, n))
						return
					}
				}
				t.check(false, "Test to be true in the end", "false %d times", spins)
			})
		}
	},
	"mpi/progress/iprobe-alone": func(t *T) {
		for i, n := range someSizes {
			t.onRank(0, func() { t.send(data(i, n), 1, 1) })
			t.onRank(1, func() {
				for k := 0; ; k++ {
					st, found := result2(t.Iprobe(mpi.AnySource, mpi.AnyTag))(t, "Iprobe")
					if found {
						t.expectStatus("the probe", st, 0, 1, n)
						break
					}
					t.check(k < spins, "Iprobe to find the message", "nothing, %d times", k)
				}
				t.expectRecv(data(i, n), 0, 1)
			})
		}
	},
	"mpi/progress/send-while-in-barrier": byRank(func(t *T) {
		r := t.isend(data(1, largeSize), 1, 1)
		f := t.isend(data(2, largeSize), 1, 2)
		t.must("Free", f.Free())
		t.barrier()
		t.barrier()
		t.wait(r)
	}, func(t *T) {
		t.expectRecv(data(1, largeSize), 0, 1)
		t.barrier()
		t.expectRecv(data(2, largeSize), 0, 2)
		t.barrier()
	}),
	"mpi/progress/receive-while-in-receive": byRank(func(t *T) {

		r := t.isend(data(1, largeSize), 1, 1)
		p := t.irecv(largeSize, 1, 2)
		t.awaitSignal(2)
		t.expectWait(p, data(2, largeSize))
		t.wait(r)
	}, func(t *T) {

		t.expectRecv(data(1, largeSize), 0, 1)
		t.must("Ssend", t.Ssend(data(2, largeSize), 0, 2))
		t.signal(2)
	}, func(t *T) {

		t.awaitSignal(1)
		t.signal(0)
	}),
	"mpi/progress/send-then-end": byRank(func(t *T) {
		t.must("AttachBuffer", t.w.AttachBuffer(20_000))
		t.must("Bsend", t.Bsend(data(9, 3000), 1, 9))
		for i, n := range someSizes {
			t.must("Free", t.isend(data(i, n), 1, i).Free())
		}
		t.must("DetachBuffer", t.w.DetachBuffer())
	}, func(t *T) {
		t.expectRecv(data(9, 3000), 0, 9)
		t.idle()
		for i, n := range someSizes {
			t.expectRecv(data(i, n), 0, i)
		}
	}),
	"mpi/progress/computing-ranks": func(t *T) {
		for i, n := range []int{64, 9000, largeSize, 64, largeSize} {
			r := t.isend(data(2*i+t.Rank(), n), t.other(), 1)
			p := t.irecv(n, t.other(), 1)
			t.w.Compute(time.Duration(1+(i+t.Rank())%3) * 100 * time.Microsecond)
			t.waitAll(r, p.Request)
			t.expectBuffer("the message", p.recvBuf, data(2*i+t.other(), n))
		}
	},
	"mpi/progress/no-starving-by-polling": byRank(func(t *T) {
		p := t.irecv(16, 1, 2)
		r := t.isend(data(1, largeSize), 1, 1)
		s := t.issend(data(3, 16), 1, 3)
		pollUntil(t, "the answer has come", p.GetStatus)
		t.expectWait(p, data(2, 16))
		t.idle()
		t.expectPending("a synchronous send that nobody has received", s)
		t.signal(1)
		t.waitAll(r, s)
	}, func(t *T) {
		t.expectRecv(data(1, largeSize), 0, 1)
		t.send(data(2, 16), 0, 2)
		t.awaitSignal(0)
		t.expectRecv(data(3, 16), 0, 3)
	}),
}
