package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// sees probes until a message is there.
func (t *T) sees(source, tag int) Status {
	var st Status
	t.until("a message is probed", func() bool {
		var found bool
		var err error
		st, found, err = t.Iprobe(source, tag)
		t.ok("Iprobe", err)
		return found
	})
	return st
}

// seesNothing ends the rank if a probe finds something.
func (t *T) seesNothing(source, tag int) {
	t.linger()
	st, found, err := t.Iprobe(source, tag)
	t.ok("Iprobe", err)
	t.check(!found, "no message to be probed", "%+v", st)
}

var probeCases = []Case{{
	ID: "mpi/probe/then-receive", Title: "A receive with what a probe told gets the message that was probed",
	Cite: rule("3.8.1", "mpi/3.8.1/1"), Setup: ranks(3), Defects: []string{"ProbeCutsCount", "ProbeLatest"},
	Sends: "messages of unknown size and tag from two ranks, each probed, then received into a buffer made for it", Expects: "the contents",
	Run: func(t *T) {
		const n = 12
		size := func(from, i int) int { return few[(i+from)%len(few)] + 3*i + from }
		if t.Rank() > 0 {
			var rs []Request
			for i := range n {
				rs = append(rs, t.isend(data(100*t.Rank()+i, size(t.Rank(), i)), 0, i))
			}
			t.waitAll(rs...)
			return
		}
		var next [3]int
		t.linger()
		for range 2 * n {
			st, err := t.Probe(mpi.AnySource, mpi.AnyTag)
			t.ok("Probe", err)
			t.check(st.Source == 1 || st.Source == 2, "a source", "%+v", st)
			i := next[st.Source]
			next[st.Source]++
			t.is("the probe", st, st.Source, i, size(st.Source, i))
			r := newRoom(st.Count)
			got, err := t.Recv(r.buf, st.Source, st.Tag)
			t.ok("Recv", err)
			t.check(got == st, fmt.Sprintf("the status of the probe, %+v, of the receive", st), "%+v", got)
			t.holds("the message", r, data(100*st.Source+i, st.Count))
		}
	},
}, {
	ID: "mpi/probe/nothing-there", Title: "Iprobe returns though there is no message, and finds none",
	Cite: rule("3.8.1", "mpi/3.8.1/3"), Defects: []string{"IprobeAlways"},
	Sends: "Iprobe of everything before anything is sent", Expects: "false; later the message",
	Run: func(t *T) {
		other := 1 - t.Rank()
		t.seesNothing(mpi.AnySource, mpi.AnyTag)
		t.barrier()
		t.seesNothing(other, 1)
		t.barrier()
		t.stillWorks()
	},
}, {
	ID: "mpi/probe/found-in-the-end", Title: "A rank that asks again and again finds the message in the end",
	Cite: rule("3.8.1", "mpi/3.8.1/4"), Defects: []string{"IprobeNever"},
	Sends: "Iprobe in a loop for messages of several sizes", Expects: "true, with the count",
	Run: func(t *T) {
		for i, n := range few {
			t.only(0, func() { t.send(data(i, n), 1, i) })
			t.only(1, func() {
				t.is("the probe", t.sees(0, i), 0, i, n)
				t.gets(data(i, n), 0, i)
			})
		}
	},
}, {
	ID: "mpi/probe/takes-nothing", Title: "Probing does not receive: a message can be probed many times",
	Cite: rule("3.8.1", "mpi/3.8.1/2"), Defects: []string{"ProbeConsumes"},
	Sends: "ten probes of one message, blocking and not, then a receive", Expects: "the same status every time, then the content",
	Run: func(t *T) {
		t.only(0, func() { t.send(data(1, 77), 1, 5) })
		t.only(1, func() {
			for range 5 {
				st, err := t.Probe(mpi.AnySource, 5)
				t.ok("Probe", err)
				t.is("Probe", st, 0, 5, 77)
				t.is("Iprobe", t.sees(0, mpi.AnyTag), 0, 5, 77)
			}
			t.gets(data(1, 77), 0, 5)
		})
	},
}, {
	ID: "mpi/probe/first-of-several", Title: "A probe finds the message that a receive would get: the first",
	Cite: rule("3.8.1", "mpi/3.8.1/1", "mpi/3.5/1"), Defects: []string{"ProbeLatest", "UnexpectedLastFirst"},
	Sends: "three messages of different lengths and one tag, all there", Expects: "the length of the first",
	Run: func(t *T) {
		side := t.dup()
		t.only(0, func() {
			var rs []Request
			for i := range 3 {
				rs = append(rs, t.isend(data(i, 10+i), 1, 5))
			}
			side.tell(1)
			t.waitAll(rs...)
		})
		t.only(1, func() {
			side.hear(0)
			t.linger()
			for i := range 3 {
				t.is("the probe", t.sees(0, 5), 0, 5, 10+i)
				t.gets(data(i, 10+i), 0, 5)
			}
		})
	},
}, {
	ID: "mpi/probe/looks-for-its-envelope", Title: "A probe finds only what its source, tag and communicator allow",
	Cite: rule("3.8.1", "mpi/3.8.1/1"), Setup: ranks(3), Defects: []string{"TagIgnored", "SourceIgnored", "DupSharesContext"},
	Sends: "a message of rank 1, tag 5, and probes for others", Expects: "that only those find it that match",
	Run: func(t *T) {
		other := t.dup()
		t.only(1, func() { t.send(data(1, 10), 0, 5) })
		t.only(0, func() {
			t.is("the probe", t.sees(mpi.AnySource, mpi.AnyTag), 1, 5, 10)
			t.seesNothing(1, 6)
			t.seesNothing(2, 5)
			t.seesNothing(2, mpi.AnyTag)
			other.seesNothing(mpi.AnySource, mpi.AnyTag)
			t.is("the probe", t.sees(1, mpi.AnyTag), 1, 5, 10)
			t.gets(data(1, 10), 1, 5)
		})
		t.barrier()
	},
}, {
	ID: "mpi/probe/not-what-was-matched", Title: "A probe does not find a message that a posted receive gets",
	Cite: rule("3.8.1", "mpi/3.8.1/1"), Defects: []string{"ProbeSeesMatched"},
	Sends: "a posted receive, its message, then probes of everything", Expects: "nothing, though the receive was not waited for",
	Run: func(t *T) {
		side := t.dup()
		for i, n := range []int{16, large} {
			t.only(1, func() {
				p := t.irecv(n, 0, 5)
				side.tell(0)
				t.seesNothing(mpi.AnySource, mpi.AnyTag)
				t.arrives(p, data(i, n))
				t.seesNothing(mpi.AnySource, mpi.AnyTag)
			})
			t.only(0, func() {
				side.hear(1)
				t.send(data(i, n), 1, 5)
			})
			side.barrier()
		}
	},
}}
