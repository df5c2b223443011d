package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

var matchedCases = []Case{{
	ID: "mpi/mprobe/takes-out", Cite: rule("mpi/3.8.2/1"),
	Title:   "A message that a matched probe has found is seen by nobody else",
	Sends:   "a matched probe of the only message, then probes of everything",
	Expects: "nothing; then the message by its handle",
	Defects: []string{"MprobeLeaves"}, Run: func(t *T) {
		for i, n := range []int{9, largeSize} {
			if t.Rank() == 0 {
				t.wait(t.isend(data(i, n), 1, 5))
			} else {
				m, st := result2(t.Mprobe(0, 5))(t, "Mprobe")
				t.expectStatus("Mprobe", st, 0, 5, n)
				t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
				again, _, found, err := t.Improbe(0, 5)
				t.must("Improbe", err)
				t.check(!found && again == nil, "nothing for Improbe", "%v, %v", again, found)
				t.expectStatus("the receive", t.expectMessage(m, data(i, n)), 0, 5, n)
			}
			t.barrier()
		}
	},
}, {
	ID: "mpi/mprobe/later-ones-pass", Cite: rule("mpi/3.8.2/1", "mpi/3.8.3/1"),
	Title:   "Messages behind one that was taken out can be received before it",
	Sends:   "three messages of one envelope; the first is taken out, the others received, then the first; the same with large ones, sent when their receives are posted",
	Expects: "each the right content",
	Defects: []string{"MprobeLeaves", "MprobeGetsNext"}, Run: byRank(func(t *T) {
		t.waitAll(t.isend(data(0, largeSize), 1, 5), t.isend(data(1, 30), 1, 5), t.isend(data(2, 40), 1, 5))
		first := t.isend(data(3, largeSize), 1, 6)
		t.awaitSignal(1)
		t.waitAll(t.isend(data(4, largeSize), 1, 6), t.isend(data(5, largeSize), 1, 6), first)
	}, func(t *T) {
		t.idle()
		m, st := result2(t.Mprobe(0, 5))(t, "Mprobe")
		t.expectStatus("Mprobe", st, 0, 5, largeSize)
		t.expectRecv(data(1, 30), 0, 5)
		t.expectRecv(data(2, 40), 0, 5)
		t.expectMessage(m, data(0, largeSize))
		m, _ = result2(t.Mprobe(0, 6))(t, "Mprobe")
		later := []*pending{t.irecv(largeSize, 0, 6), t.irecv(largeSize, 0, 6)}
		t.signal(0)
		for i, p := range later {
			t.expectWait(p, data(4+i, largeSize))
		}
		t.expectMessage(m, data(3, largeSize))
	}),
}, {
	ID: "mpi/mprobe/right-one-by-each-handle", Cite: rule("mpi/3.8.3/1"), Setup: ranks(3),
	Title:   "Each of several messages that were taken out is received by its own handle",
	Sends:   "messages of two ranks, all taken out with wildcards, received from the last to the first",
	Expects: "what each probe told",
	Defects: []string{"MprobeGetsNext", "MprobeLeaves"}, Run: func(t *T) {
		const n = 8
		if t.Rank() > 0 {
			t.waitAll(startAll(n, func(i int) Request { return t.isend(data(100*t.Rank()+i, 20+i), 0, i) })...)
			return
		}
		t.idle()
		var ms []Message
		var sts []Status
		seen := make(map[Status]bool)
		for range 2 * n {
			m, st := result2(t.Mprobe(mpi.AnySource, mpi.AnyTag))(t, "Mprobe")
			t.check(!seen[st], "each message once", "%+v again", st)
			seen[st] = true
			ms, sts = append(ms, m), append(sts, st)
		}
		for i := 2*n - 1; i >= 0; i-- {
			st := sts[i]
			t.check(st.Count == 20+st.Tag, "the count of its message", "%+v", st)
			got := t.expectMessage(ms[i], data(100*st.Source+st.Tag, st.Count))
			t.check(got == st, fmt.Sprintf("the status of the probe, %+v", st), "%+v", got)
		}
	},
}, {
	ID: "mpi/mprobe/improbe", Cite: rule("mpi/3.8.2/2"),
	Title:   "Improbe finds nothing where nothing is, and the message in the end",
	Sends:   "Improbe before and after a send",
	Expects: "no message and false, then the message once",
	Defects: []string{"IprobeNever", "MprobeLeaves"}, Run: func(t *T) {
		t.onRank(1, func() {
			m, _, found, err := t.Improbe(mpi.AnySource, mpi.AnyTag)
			t.must("Improbe", err)
			t.check(!found && m == nil, "nothing", "%v", m)
		})
		t.barrier()
		t.onRank(0, func() { t.send(data(2, 50), 1, 3) })
		t.onRank(1, func() {
			var m Message
			var st Status
			t.waitUntil("Improbe finds the message", func() bool {
				var found bool
				var err error
				m, st, found, err = t.Improbe(0, mpi.AnyTag)
				t.must("Improbe", err)
				return found
			})
			t.expectStatus("Improbe", st, 0, 3, 50)
			t.expectNoMessage(0, 3)
			t.expectMessage(m, data(2, 50))
		})
	},
}, {
	ID: "mpi/mprobe/irecv", Cite: rule("mpi/3.8.3/2"),
	Title:   "A message that was taken out can be received without waiting",
	Sends:   "small and large messages, taken out, their receives begun, waited for together",
	Expects: "the contents and statuses",
	Defects: []string{"MiddleDamaged", "CountIsRoom"}, Run: byRank(func(t *T) {
		t.waitAll(startAll(len(someSizes), func(i int) Request { return t.isend(data(i, someSizes[i]), 1, i) })...)
	}, func(t *T) {
		var rs []Request
		var rooms []*guardedBuf
		for i, n := range someSizes {
			m, st := result2(t.Mprobe(0, i))(t, "Mprobe")
			t.expectStatus("Mprobe", st, 0, i, n)
			rooms = append(rooms, newGuardedBuf(n+4))
			rs = append(rs, started(m.Irecv(rooms[i].buf))(t, "Message.Irecv"))
		}
		for i, st := range t.waitAll(rs...) {
			t.expectStatus("the receive", st, 0, i, someSizes[i])
			t.expectBuffer("the message", rooms[i], data(i, someSizes[i]))
		}
	}),
}, {
	ID: "mpi/mprobe/once", Cite: rule("mpi/3.8.3/3"),
	Title:   "A message can be received once",
	Sends:   "a second receive by the same handle",
	Expects: "an error, and nothing else harmed",
	Defects: []string{"MessageTwice"}, Run: func(t *T) {
		t.onRank(0, func() { t.send(data(2, 50), 1, 3) })
		t.onRank(1, func() {
			m, _ := result2(t.Mprobe(0, 3))(t, "Mprobe")
			t.expectMessage(m, data(2, 50))
			t.check(errorOf(m.Recv(make([]byte, 50))) != nil, "an error of a second receive", "none")
		})
		t.expectUsable()
	},
}, {
	ID: "mpi/mprobe/synchronous", Cite: rule("mpi/3.8.3/1", "mpi/3.4/1"),
	Title:   "A synchronous send completes when the message that was taken out is received",
	Sends:   "an Issend, taken out and received by its handle",
	Expects: "the content; then that the send is complete",
	Defects: []string{"TestNever"}, Run: byRank(func(t *T) {
		r := t.issend(data(1, 200), 1, 1)
		pollUntil(t, "the send is complete", r.Test)
	}, func(t *T) {
		m, _ := result2(t.Mprobe(0, 1))(t, "Mprobe")
		t.expectMessage(m, data(1, 200))
	}),
}}
