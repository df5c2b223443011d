package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

var matchedPrograms = programs{
	"mpi/mprobe/takes-out": func(t *T) {
		for i, n := range []int{9, largeSize} {
			t.onRank(0, func() {
				r := t.isend(data(i, n), 1, 5)
				t.wait(r)
			})
			t.onRank(1, func() {
				m, st := result2(t.Mprobe(0, 5))(t, "Mprobe")
				t.expectStatus("Mprobe", st, 0, 5, n)
				t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
				again, _, found, err := t.Improbe(0, 5)
				t.must("Improbe", err)
				t.check(!found && again == nil, "nothing for Improbe", "%v, %v", again, found)
				t.expectStatus("the receive", t.expectMessage(m, data(i, n)), 0, 5, n)
			})
			t.barrier()
		}
	},
	"mpi/mprobe/later-ones-pass": byRank(func(t *T) {
		var rs []Request
		for i, n := range []int{largeSize, 30, 40} {
			rs = append(rs, t.isend(data(i, n), 1, 5))
		}
		t.waitAll(rs...)
	}, func(t *T) {
		t.idle()
		m, st := result2(t.Mprobe(0, 5))(t, "Mprobe")
		t.expectStatus("Mprobe", st, 0, 5, largeSize)
		t.expectRecv(data(1, 30), 0, 5)
		t.expectRecv(data(2, 40), 0, 5)
		t.expectMessage(m, data(0, largeSize))
	}),
	"mpi/mprobe/right-one-by-each-handle": func(t *T) {
		const n = 8
		if t.Rank() > 0 {
			rs := startAll(n, func(i int) Request { return t.isend(data(100*t.Rank()+i, 20+i), 0, i) })
			t.waitAll(rs...)
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
	"mpi/mprobe/improbe": func(t *T) {
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
	"mpi/mprobe/irecv": byRank(func(t *T) {
		rs := startAll(len(someSizes), func(i int) Request { return t.isend(data(i, someSizes[i]), 1, i) })
		t.waitAll(rs...)
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
	"mpi/mprobe/once": func(t *T) {
		t.onRank(0, func() { t.send(data(2, 50), 1, 3) })
		t.onRank(1, func() {
			m, _, err := t.Mprobe(0, 3)
			t.must("Mprobe", err)
			t.expectMessage(m, data(2, 50))
			_, err = m.Recv(make([]byte, 50))
			t.check(err != nil, "an error of a second receive", "none")
		})
		t.expectUsable()
	},
	"mpi/mprobe/synchronous": byRank(func(t *T) {
		r := t.issend(data(1, 200), 1, 1)
		pollUntil(t, "the send is complete", r.Test)
	}, func(t *T) {
		m, _ := result2(t.Mprobe(0, 1))(t, "Mprobe")
		t.expectMessage(m, data(1, 200))
	}),
}
