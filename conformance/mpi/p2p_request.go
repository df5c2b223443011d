package mpi

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi"
)

var requestCases = []Case{{
	ID: "mpi/request/freed-send", Cite: rule("mpi/3.7.3/4"),
	Title:   "A send whose request was freed arrives all the same",
	Sends:   "sends of several sizes whose requests are freed at once; an answer when they have arrived",
	Expects: "the contents",
	Defects: []string{"FreeCancels"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/request/freed-receive", Cite: rule("mpi/3.7.3/4"),
	Title:   "A receive whose request was freed takes its message all the same",
	Sends:   "a receive freed, then two messages of its envelope, one more receive",
	Expects: "the first message in the freed one's buffer, the second in the other",
	Defects: []string{"FreeUnposts"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/request/active", Cite: rule("mpi/3.7.3/2"),
	Title:   "A request is active from its beginning until it was waited for",
	Sends:   "a receive looked at when it is begun, complete, and waited for",
	Expects: "active, active, not active",
	Defects: []string{"CompleteStaysActive", "GetStatusFrees"}, Run: func(t *T) {
		p := t.irecv(10, t.other(), 1)
		t.check(p.Active(), "a new receive to be active", "inactive")
		t.send(data(t.Rank(), 10), t.other(), 1)
		pollUntil(t, "the receive is complete", p.GetStatus)
		t.check(p.Active(), "a complete receive to be active until it is waited for", "inactive")
		t.expectWait(p, data(t.other(), 10))
		t.check(!p.Active(), "the receive not to be active any more", "active")
	},
}, {
	ID: "mpi/request/status-is-of-its-own", Cite: rule("mpi/3.2.5/1"), Setup: ranks(4),
	Title:   "The status of each request is that of its own message",
	Sends:   "receives of any tag from each rank, messages with tags and lengths of their own",
	Expects: "source, tag and count of each",
	Defects: []string{"CountIsRoom", "StatusesReversed", "WildTagUntold"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		ps, rs := startReceives(n, func(from int) *pending { return t.irecv(100, from, mpi.AnyTag) })
		for to := range n {
			rs = append(rs, t.isend(data(10*me+to, 20+10*me+to), to, 7*me+to))
		}
		for from, st := range t.waitAll(rs...)[:n] {
			t.expectStatus("the receive", st, from, 7*from+me, 20+10*from+me)
			t.expectBuffer("the message", ps[from].recvBuf, data(10*from+me, 20+10*from+me))
		}
	},
}}
