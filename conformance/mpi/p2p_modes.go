package mpi

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi"
)

// syncWaits is a case of a synchronous send that must not be complete while its receive
// provably has not begun.
func syncWaits(n int) func(*T) {
	return byRank(func(t *T) {
		r := t.issend(data(1, n), 1, 4)
		for range 5 { // the other rank runs, and looks at what has come
			t.signal(1)
			t.awaitSignal(1)
			t.expectPending("a synchronous send without a receive", r)
		}
		t.signal(1)
		t.wait(r)
		t.signal(1)
	}, func(t *T) {
		for range 5 {
			t.awaitSignal(0)
			t.idle()
			t.signal(0)
		}
		t.awaitSignal(0)
		p := t.irecv(n, 0, 4)
		t.awaitSignal(0)
		t.expectWait(p, data(1, n))
	})
}

var modePrograms = programs{
	"mpi/mode/synchronous-waits":            syncWaits(8),
	"mpi/mode/synchronous-waits-when-large": syncWaits(largeSize),
	"mpi/mode/synchronous-waits-when-empty": syncWaits(0),
	"mpi/mode/ssend-blocks": byRank(func(t *T) {

		t.must("Ssend", t.Ssend(data(1, 100), 1, 4))
		t.send(nil, 2, 5)
	}, func(t *T) {

		t.awaitSignal(2)
		t.expectRecv(data(1, 100), 0, 4)
	}, func(t *T) {

		t.idle()
		_, there := result2(t.Iprobe(0, 5))(t, "Iprobe")
		t.check(!there, "Ssend not to return before its receive", "what was sent behind it")
		t.signal(1)
		t.expectRecv(nil, 0, 5)
	}),
	"mpi/mode/probe-receives-nothing": byRank(func(t *T) {
		r := t.issend(data(3, 64), 1, 4)
		t.awaitSignal(1)
		t.expectPending("a send that was probed only", r)
		t.signal(1)
		t.wait(r)
	}, func(t *T) {
		st := result(t.Probe(0, 4))(t, "Probe")
		t.expectStatus("the probe", st, 0, 4, 64)
		t.signal(0)
		t.awaitSignal(0)
		t.expectRecv(data(3, 64), 0, 4)
	}),
	"mpi/mode/synchronous-to-oneself": func(t *T) {
		for _, n := range []int{8, largeSize} {
			r := t.issend(data(n, n), 0, 1)
			t.idle()
			t.expectPending("a synchronous send without a receive", r)
			t.expectRecv(data(n, n), 0, 1)
			t.wait(r)
		}
	},
	"mpi/mode/synchronous-completes": byRank(func(t *T) {
		t.awaitSignal(1)
		rs := startAll(len(someSizes), func(i int) Request { return t.issend(data(i, someSizes[i]), 1, i) })
		pollUntil(t, "synchronous sends complete", func() ([]Status, bool, error) { return t.w.TestAll(rs) })
		t.onRank(0, func() { // a request of a kind of its own: Test alone
			r := t.issend(nil, 1, 99)
			pollUntil(t, "an empty synchronous send is complete", r.Test)
		})
		t.signal(1)
	}, func(t *T) {
		ps := startAll(len(someSizes), func(i int) *pending { return t.irecv(someSizes[i], 0, i) })
		last := t.irecv(0, 0, 99)
		t.signal(0)
		t.awaitSignal(0)
		for i, p := range ps {
			t.expectWait(p, data(i, someSizes[i]))
		}
		t.expectWait(last, nil)
	}),
	"mpi/mode/ready": byRank(func(t *T) {
		t.awaitSignal(1)
		for i, n := range someSizes {
			if i%2 == 0 {
				t.must("Rsend", t.Rsend(data(i, n), 1, i))
				continue
			}
			t.wait(started(t.Irsend(data(i, n), 1, i))(t, "Irsend"))
		}
	}, func(t *T) {
		ps := startAll(len(someSizes), func(i int) *pending { return t.irecv(someSizes[i], 0, i) })
		t.signal(0)
		for i, p := range ps {
			t.expectStatus("the receive", t.expectWait(p, data(i, someSizes[i])), 0, i, someSizes[i])
		}
	}),
	"mpi/mode/any-receive-fits": byRank(func(t *T) {
		t.must("AttachBuffer", t.w.AttachBuffer(4096))
		t.awaitSignal(1)
		t.must("Send", t.Send(data(0, 100), 1, 0))
		t.must("Ssend", t.Ssend(data(1, 100), 1, 1))
		t.must("Bsend", t.Bsend(data(2, 100), 1, 2))
		t.must("Rsend", t.Rsend(data(3, 100), 1, 4))
		t.must("DetachBuffer", t.w.DetachBuffer())
	}, func(t *T) {
		ready := t.irecv(100, 0, 4)
		t.signal(0)
		for i := range 3 {
			t.expectRecv(data(i, 100), 0, i)
		}
		t.expectWait(ready, data(3, 100))
	}),
	"mpi/mode/isend-returns": func(t *T) {
		rs := startAll(4, func(i int) Request { return t.isend(data(10*t.Rank()+i, largeSize), t.other(), i) })
		for i := range 4 {
			t.expectRecv(data(10*t.other()+i, largeSize), t.other(), i)
		}
		t.waitAll(rs...)
	},
	"mpi/mode/buffer-is-free-after-send": func(t *T) {
		sizes := allSizes()
		buf := make([]byte, sizes[len(sizes)-1])
		for i, n := range sizes {
			t.onRank(0, func() {
				copy(buf, data(i, n))
				t.send(buf[:n], 1, 1)
				clear(buf[:n])
			})
			t.onRank(1, func() { t.expectRecv(data(i, n), 0, 1) })
		}
	},
	"mpi/mode/buffer-is-free-after-wait": func(t *T) {
		sizes := []int{1, 64, 900, 1024, 4000, 9000, 20_000, 66_000}
		t.onRank(0, func() {
			var rs []Request
			var bufs [][]byte
			for i, n := range sizes {
				bufs = append(bufs, data(i, n))
				rs = append(rs, t.isend(bufs[i], 1, i))
			}
			for range rs {
				i, _ := result2(t.w.WaitAny(rs))(t, "WaitAny")
				t.check(i >= 0 && i < len(bufs), "an index", "%d", i)
				copy(bufs[i], bytes.Repeat([]byte{0xee}, len(bufs[i])))
			}
		})
		t.onRank(1, func() {
			for i := len(sizes) - 1; i >= 0; i-- {
				t.idle()
				t.expectRecv(data(i, sizes[i]), 0, i)
			}
		})
	},
	"mpi/mode/one-buffer-many-sends": func(t *T) {
		d := data(5, largeSize)
		t.onRank(0, func() {
			var rs []Request
			for to := 1; to <= 2; to++ {
				rs = append(rs, t.isend(d, to, 1), t.isend(d[3:1000], to, 2), t.isend(d[1000:100_000], to, 3))
			}
			t.waitAll(rs...)
		})
		if t.Rank() > 0 {
			t.expectRecv(d, 0, 1)
			t.expectRecv(d[3:1000], 0, 2)
			t.expectRecv(d[1000:100_000], 0, mpi.AnyTag)
		}
	},
}
