package mpi

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi"
)

// syncWaits returns the body of a case: a synchronous send of n bytes by rank 0 completes after
// rank 1 posts the receive, and before rank 1 waits for it. Rank 0 signals rank 1 before each step.
func syncWaits(n int) func(*T) {
	const rounds, tag = 5, 4
	return byRank(func(t *T) {
		send := t.issend(data(1, n), 1, tag)
		for range rounds { // rank 1 calls MPI meanwhile (idle), which may find the message
			t.signal(1)
			t.awaitSignal(1)
			t.expectPending("a synchronous send without a receive", send)
		}
		t.signal(1)
		t.wait(send)
		t.signal(1)
	}, func(t *T) {
		for range rounds {
			t.awaitSignal(0)
			t.idle()
			t.signal(0)
		}
		t.awaitSignal(0)
		p := t.irecv(n, 0, tag)
		t.awaitSignal(0)
		t.expectWait(p, data(1, n))
	})
}

var modeCases = []Case{{
	ID: "mpi/mode/synchronous-waits", Cite: rule("mpi/3.4/1"),
	Title:   "A synchronous send is not complete before its receive has begun",
	Sends:   "an Issend of 8 bytes; a conversation; the receive",
	Expects: "Test false until the receive is there, then completion",
	Defects: []string{"SyncEarly", "SyncOnArrival"}, Run: syncWaits(8),
}, {
	ID: "mpi/mode/synchronous-waits-when-large", Cite: rule("mpi/3.4/1"),
	Title:   "A synchronous send of a large message is not complete before its receive has begun",
	Sends:   "the same with a large message",
	Expects: "the same",
	Defects: []string{"SyncEarly", "SyncOnArrival"}, Run: syncWaits(largeSize),
}, {
	ID: "mpi/mode/synchronous-waits-when-empty", Cite: rule("mpi/3.4/1"),
	Title:   "A synchronous send without data is not complete before its receive has begun",
	Sends:   "the same with nothing in the message",
	Expects: "the same",
	Defects: []string{"SyncEarly", "SyncSmallEarly"}, Run: syncWaits(0),
}, {
	ID: "mpi/mode/ssend-blocks", Cite: rule("mpi/3.4/1"), Setup: ranks(3),
	Title:   "Ssend does not return before its receive has begun",
	Sends:   "rank 0 sends synchronously to 1, then tells 2; rank 2 looks for that word before it lets 1 receive",
	Expects: "that there is no such word until then",
	Defects: []string{"SyncEarly"}, Run: byRank(func(t *T) {
		t.must("Ssend", t.Ssend(data(1, 100), 1, 4))
		t.send(nil, 2, 5)
	}, func(t *T) {
		t.awaitSignal(2)
		t.expectRecv(data(1, 100), 0, 4)
	}, func(t *T) {
		t.expectNoMessage(0, 5) // Ssend has not returned
		t.signal(1)
		t.expectRecv(nil, 0, 5)
	}),
}, {
	ID: "mpi/mode/probe-receives-nothing", Cite: rule("mpi/3.8.1/2", "mpi/3.4/1"),
	Title:   "A probe that finds a synchronous message does not complete its send",
	Sends:   "an Issend that the other rank probes, and receives later",
	Expects: "Test false in between",
	Defects: []string{"ProbeCompletesSync"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/mode/synchronous-to-oneself", Cite: rule("mpi/3.4/1"), Setup: ranks(1),
	Title:   "A synchronous send to oneself waits for the receive as well",
	Sends:   "an Issend of a rank to itself, looked at before and after its receive",
	Expects: "that it is complete only then",
	Defects: []string{"SyncEarly", "SyncOnArrival"}, Run: func(t *T) {
		for _, n := range []int{8, largeSize} {
			r := t.issend(data(n, n), 0, 1)
			t.idle()
			t.expectPending("a synchronous send without a receive", r)
			t.expectRecv(data(n, n), 0, 1)
			t.wait(r)
		}
	},
}, {
	ID: "mpi/mode/synchronous-completes", Cite: rule("mpi/3.4/1"),
	Title:   "A synchronous send completes when its receive has begun, waited for or not",
	Sends:   "receives that are posted and not waited for until the sender says that its sends are complete",
	Expects: "that it says so",
	Defects: []string{"TestNever", "EmptyDropped"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/mode/ready", Cite: rule("mpi/3.4/2"),
	Title:   "Ready sends whose receives are posted arrive, whatever their size",
	Sends:   "receives of several sizes, then an Rsend or Irsend for each",
	Expects: "the contents",
	Defects: []string{"ReadyLost", "ReadyEmpty"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/mode/any-receive-fits", Cite: rule("mpi/3.4/3"),
	Title:   "A receive takes messages of all modes",
	Sends:   "one Send, Ssend, Bsend and Rsend to receives that are all alike",
	Expects: "the contents",
	Defects: []string{"ReadyEmpty", "MiddleDamaged"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/mode/isend-returns", Cite: rule("mpi/3.7/1"),
	Title:   "Isend returns whether there is a receive or not, at any size",
	Sends:   "both ranks begin large sends to each other, and only then receive",
	Expects: "the contents",
	Defects: []string{"IsendWaits"}, Run: func(t *T) {
		rs := startAll(4, func(i int) Request { return t.isend(data(10*t.Rank()+i, largeSize), t.other(), i) })
		for i := range 4 {
			t.expectRecv(data(10*t.other()+i, largeSize), t.other(), i)
		}
		t.waitAll(rs...)
	},
}, {
	ID: "mpi/mode/buffer-is-free-after-send", Cite: rule("mpi/3.4/4"),
	Title:   "What is written to a buffer after Send has returned does not change the message",
	Sends:   "sends from one buffer that is overwritten at once, of all sizes",
	Expects: "the contents of the time of the sends",
	Defects: []string{"LateCopy"}, Run: func(t *T) {
		sizes := sizesUpTo(maxSize)
		buf := make([]byte, maxSize)
		for i, n := range sizes {
			t.onRank(0, func() {
				copy(buf, data(i, n))
				t.send(buf[:n], 1, 1)
				clear(buf[:n])
			})
			t.onRank(1, func() { t.expectRecv(data(i, n), 0, 1) })
		}
	},
}, {
	ID: "mpi/mode/buffer-is-free-after-wait", Cite: rule("mpi/3.7.3/1"),
	Title:   "What is written to a buffer after the wait for its send does not change the message",
	Sends:   "Isends of several sizes, whose buffers are overwritten as soon as each is complete; receives that come late",
	Expects: "the contents of the time of the sends",
	Defects: []string{"LateCopy"}, Run: func(t *T) {
		sizes := []int{1, 64, 900, 1024, 4000, 9000, 20_000, 66_000}
		if t.Rank() == 0 {
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
		} else {
			for i := len(sizes) - 1; i >= 0; i-- {
				t.idle()
				t.expectRecv(data(i, sizes[i]), 0, i)
			}
		}
	},
}, {
	ID: "mpi/mode/one-buffer-many-sends", Cite: rule("mpi/3.7.2/1"), Setup: ranks(3),
	Title:   "One buffer can be in several sends at the same time",
	Sends:   "overlapping parts of one buffer in sends to two ranks at once",
	Expects: "all contents",
	Defects: []string{"LastByteLost", "MiddleDamaged"}, Run: func(t *T) {
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
}}
