package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// expectProbe probes until a message arrives, and returns its status.
func (t *T) expectProbe(source, tag int) Status {
	return pollUntil(t, "a message is probed", func() (Status, bool, error) { return t.Iprobe(source, tag) })
}

// expectNoMessage lets time pass, and then ends the rank if a probe finds a message.
func (t *T) expectNoMessage(source, tag int) {
	t.idle()
	st, found := result2(t.Iprobe(source, tag))(t, "Iprobe")
	t.check(!found, "no message to be probed", "%+v", st)
}

var probeCases = []Case{{
	ID: "mpi/probe/then-receive", Cite: rule("mpi/3.8.1/1"), Setup: ranks(3),
	Title:   "A receive with what a probe told gets the message that was probed",
	Sends:   "messages of unknown size and tag from two ranks, each probed, then received into a buffer made for it",
	Expects: "the contents",
	Defects: []string{"ProbeCutsCount", "ProbeLatest"}, Run: func(t *T) {
		const n = 12
		size := func(from, i int) int { return someSizes[(i+from)%len(someSizes)] + 3*i + from }
		if t.Rank() > 0 {
			t.waitAll(startAll(n, func(i int) Request { return t.isend(data(100*t.Rank()+i, size(t.Rank(), i)), 0, i) })...)
			return
		}
		var next [3]int
		t.idle()
		for range 2 * n {
			st := result(t.Probe(mpi.AnySource, mpi.AnyTag))(t, "Probe")
			t.check(st.Source == 1 || st.Source == 2, "a source", "%+v", st)
			i := next[st.Source]
			next[st.Source]++
			t.expectStatus("the probe", st, st.Source, i, size(st.Source, i))
			r := newGuardedBuf(st.Count)
			got := result(t.Recv(r.buf, st.Source, st.Tag))(t, "Recv")
			t.check(got == st, fmt.Sprintf("the status of the probe, %+v, of the receive", st), "%+v", got)
			t.expectBuffer("the message", r, data(100*st.Source+i, st.Count))
		}
	},
}, {
	ID: "mpi/probe/nothing-there", Cite: rule("mpi/3.8.1/3"),
	Title:   "Iprobe returns though there is no message, and finds none",
	Sends:   "Iprobe of everything before anything is sent",
	Expects: "false; later the message",
	Defects: []string{"IprobeAlways"}, Run: func(t *T) {
		t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
		t.barrier()
		t.expectNoMessage(t.other(), 1)
		t.barrier()
		t.expectUsable()
	},
}, {
	ID: "mpi/probe/found-in-the-end", Cite: rule("mpi/3.8.1/4"),
	Title:   "A rank that asks again and again finds the message in the end",
	Sends:   "Iprobe in a loop for messages of several sizes",
	Expects: "true, with the count",
	Defects: []string{"IprobeNever"}, Run: onSizes(someSizes, sendSize, func(t *T, i, n int) {
		t.expectStatus("the probe", t.expectProbe(0, i), 0, i, n)
		t.expectRecv(data(i, n), 0, i)
	}),
}, {
	ID: "mpi/probe/takes-nothing", Cite: rule("mpi/3.8.1/2"),
	Title:   "Probing does not receive: a message can be probed many times",
	Sends:   "ten probes of one message, blocking and not, then a receive",
	Expects: "the same status every time, then the content",
	Defects: []string{"ProbeConsumes"}, Run: byRank(func(t *T) { t.send(data(1, 77), 1, 5) }, func(t *T) {
		for range 5 {
			st := result(t.Probe(mpi.AnySource, 5))(t, "Probe")
			t.expectStatus("Probe", st, 0, 5, 77)
			t.expectStatus("Iprobe", t.expectProbe(0, mpi.AnyTag), 0, 5, 77)
		}
		t.expectRecv(data(1, 77), 0, 5)
	}),
}, {
	ID: "mpi/probe/first-of-several", Cite: rule("mpi/3.8.1/1", "mpi/3.5/1"),
	Title:   "A probe finds the message that a receive would get: the first",
	Sends:   "three messages of different lengths and one tag, all there",
	Expects: "the length of the first",
	Defects: []string{"ProbeLatest", "UnexpectedLastFirst"}, Run: func(t *T) {
		t.sendUnexpected(3, func(i int) Request { return t.isend(data(i, 10+i), 1, 5) }, func() {
			for i := range 3 {
				t.expectStatus("the probe", t.expectProbe(0, 5), 0, 5, 10+i)
				t.expectRecv(data(i, 10+i), 0, 5)
			}
		})
	},
}, {
	ID: "mpi/probe/looks-for-its-envelope", Cite: rule("mpi/3.8.1/1"), Setup: ranks(3),
	Title:   "A probe finds only what its source, tag and communicator allow",
	Sends:   "a message of rank 1, tag 5, and probes for others",
	Expects: "that only those find it that match",
	Defects: []string{"TagIgnored", "SourceIgnored", "DupSharesContext"}, Run: func(t *T) {
		other := t.dup()
		t.onRank(1, func() { t.send(data(1, 10), 0, 5) })
		t.onRank(0, func() {
			t.expectStatus("the probe", t.expectProbe(mpi.AnySource, mpi.AnyTag), 1, 5, 10)
			t.expectNoMessage(1, 6)
			t.expectNoMessage(2, 5)
			t.expectNoMessage(2, mpi.AnyTag)
			other.expectNoMessage(mpi.AnySource, mpi.AnyTag)
			t.expectStatus("the probe", t.expectProbe(1, mpi.AnyTag), 1, 5, 10)
			t.expectRecv(data(1, 10), 1, 5)
		})
		t.barrier()
	},
}, {
	ID: "mpi/probe/not-what-was-matched", Cite: rule("mpi/3.8.1/1"),
	Title:   "A probe does not find a message that a posted receive gets",
	Sends:   "a posted receive, its message, then probes of everything",
	Expects: "nothing, though the receive was not waited for",
	Defects: []string{"ProbeSeesMatched"}, Run: func(t *T) {
		side := t.dup()
		for i, n := range []int{16, largeSize} {
			if t.Rank() == 1 {
				p := t.irecv(n, 0, 5)
				side.signal(0)
				t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
				t.expectWait(p, data(i, n))
				t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
			} else {
				side.awaitSignal(1)
				t.send(data(i, n), 1, 5)
			}
			side.barrier()
		}
	},
}}
