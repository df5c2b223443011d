package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// spinUntil repeats call until it reports true, and returns its status. Unlike pollUntil it does
// not pause between calls, and ends the rank after a number of calls instead of a time. The
// violation names the condition.
func spinUntil(t *T, condition string, call func() (Status, bool, error)) Status {
	const spins = 2_000_000
	for range spins {
		if st, done := result2(call())(t, "a test whether "+condition); done {
			return st
		}
	}
	t.check(false, condition+" in the end", "not in %d calls", spins)
	return Status{}
}

var progressCases = []Case{{
	ID: "mpi/progress/test-alone", Cite: rule("mpi/3.7.3/5"),
	Title:   "A rank that does nothing but Test completes its request",
	Sends:   "Test in a loop without a pause, for messages of all sizes",
	Expects: "true",
	Defects: []string{"TestNever"}, Run: onSizes(someSizes, sendSize, func(t *T, i, n int) {
		p := t.irecv(n, 0, i)
		t.expectStatus("the receive", spinUntil(t, "Test is true", p.Test), 0, i, n)
		t.expectBuffer("the message", p.recvBuf, data(i, n))
	}),
}, {
	ID: "mpi/progress/iprobe-alone", Cite: rule("mpi/3.8.1/4"),
	Title:   "A rank that does nothing but Iprobe finds its message",
	Sends:   "Iprobe in a loop without a pause, for messages of all sizes",
	Expects: "true",
	Defects: []string{"IprobeNever"}, Run: onSizes(someSizes, sendSize, func(t *T, i, n int) {
		st := spinUntil(t, "Iprobe finds the message", func() (Status, bool, error) { return t.Iprobe(mpi.AnySource, mpi.AnyTag) })
		t.expectStatus("the probe", st, 0, i, n)
		t.expectRecv(data(i, n), 0, i)
	}),
}, {
	ID: "mpi/progress/send-while-in-barrier", Cite: rule("mpi/3.7.4/2"),
	Title:   "A send that was begun goes on while its rank waits for something else",
	Sends:   "a large Isend, then a Barrier; the other rank receives before it comes to the barrier",
	Expects: "the message, then the barrier",
	Defects: []string{"FreeCancels", "LargeNeedsWait"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/progress/receive-while-in-receive", Cite: rule("mpi/3.7.4/2"), Setup: ranks(3),
	Title:   "Requests go on while their rank waits in a receive for another rank",
	Sends:   "rank 0 has a large send to and a large receive from 1 under way, and waits for 2, which 1 tells when both are through",
	Expects: "that all ends",
	Defects: []string{"LargeNeedsWait"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/progress/send-then-end", Cite: rule("mpi/8.7/1"),
	Title:   "Messages that were sent arrive though their sender has ended its program",
	Sends:   "sends of several sizes, freed or buffered, and then nothing more",
	Expects: "the contents",
	Defects: []string{"FreeCancels"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/progress/computing-ranks", Cite: rule("mpi/3.7.4/2"),
	Title:   "Requests that were begun before a computation are complete some time after it",
	Sends:   "exchanges with a computation between beginning and wait, of another length on each rank",
	Expects: "the contents",
	Defects: []string{"LargeDamaged"}, Run: func(t *T) {
		for i, n := range []int{64, 9000, largeSize, 64, largeSize} {
			r := t.isend(data(2*i+t.Rank(), n), t.other(), 1)
			p := t.irecv(n, t.other(), 1)
			t.w.Compute(time.Duration(1+(i+t.Rank())%3) * 100 * time.Microsecond)
			t.waitAll(r, p.Request)
			t.expectBuffer("the message", p.recvBuf, data(2*i+t.other(), n))
		}
	},
}, {
	ID: "mpi/progress/no-starving-by-polling", Cite: rule("mpi/3.5/3"),
	Title:   "A rank that polls one request does not keep its others from completing",
	Sends:   "rank 0 tests a receive whose message comes only after a large send of its own was received",
	Expects: "both complete",
	Defects: []string{"LargeNeedsWait", "SyncOnArrival"}, Run: byRank(func(t *T) {
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
}}
