package mpi

import "github.com/fabrictest/fabrictest/mpi"

var floodCases = []Case{{
	ID: "mpi/flood/unexpected", Cite: rule("mpi/3.5/4"),
	Title:   "Thousands of messages that nobody receives yet are kept",
	Sends:   "2000 sends begun before the first receive",
	Expects: "all of them, in order, whole",
	Defects: []string{"FloodLost", "OvertakesRarely"}, Run: func(t *T) {
		const n = 2000
		t.sendUnexpected(n, func(i int) Request { return t.isend(data(i, 40), 1, 1) }, func() {
			for i := range n {
				t.expectRecv(data(i, 40), 0, 1)
			}
		})
	},
}, {
	ID: "mpi/flood/from-all", Cite: rule("mpi/3.5/4"), Setup: ranks(5),
	Title:   "One rank can be sent to by all at once, more than it has asked for",
	Sends:   "four ranks send 300 messages each of all sizes; the fifth receives them late, rank by rank",
	Expects: "all, in order, whole",
	Defects: []string{"FloodLost", "Overtakes"}, Run: func(t *T) {
		const n = 300
		size := func(i int) int { return []int{0, 8, 64, 200, 1500, 9000}[i%6] }
		if t.Rank() > 0 {
			t.waitAll(startAll(n, func(i int) Request { return t.isend(data(1000*t.Rank()+i, size(i)), 0, 1) })...)
			return
		}
		for range 20 {
			t.idle()
		}
		for from := 4; from > 0; from-- {
			for i := range n {
				t.expectRecv(data(1000*from+i, size(i)), from, 1)
			}
		}
	},
}, {
	ID: "mpi/flood/tags-against-the-order", Cite: rule("mpi/3.2.4/1"),
	Title:   "A thousand receives with tags of their own are found whatever order messages come in",
	Sends:   "1000 tags posted, messages sent from the last to the first, some tags far apart",
	Expects: "each in its receive",
	Defects: []string{"TagIgnored", "TagCut"}, Run: func(t *T) {
		const n = 1000
		tag := func(i int) int { return i%2*(1<<20) + i/2 }
		if t.Rank() == 1 {
			ps := startAll(n, func(i int) *pending { return t.irecv(24, 0, tag(i)) })
			t.send(nil, 0, mpi.TagMax)
			for i, p := range ps {
				t.expectStatus("the receive", t.expectWait(p, data(i, 24)), 0, tag(i), 24)
			}
		} else {
			t.expectRecv(nil, 1, mpi.TagMax)
			for i := n - 1; i >= 0; i-- {
				t.send(data(i, 24), 1, tag(i))
			}
		}
	},
}, {
	ID: "mpi/flood/tags-of-what-waits", Cite: rule("mpi/3.2.4/1"),
	Title:   "Of many messages that wait a receive finds the one with its tag",
	Sends:   "600 messages with tags of their own that wait, received from the last to the first; then some of any tag",
	Expects: "each by its tag; the rest in the order of sending",
	Defects: []string{"TagIgnored", "TagCut", "UnexpectedByTag"}, Run: func(t *T) {
		const n, rest = 600, 10
		tag := func(i int) int { return 70_000 + i%2<<16 - 7*(i/2) }
		t.sendUnexpected(n+rest, func(i int) Request { return t.isend(data(i, 24), 1, tag(i)) }, func() {
			for i := n - 1; i >= 0; i-- {
				t.expectRecv(data(i, 24), 0, tag(i))
			}
			for i := n; i < n+rest; i++ {
				t.expectStatus("the receive", t.expectRecv(data(i, 24), 0, mpi.AnyTag), 0, tag(i), 24)
			}
		})
	},
}, {
	ID: "mpi/flood/many-large", Cite: rule("mpi/3.7.4/2"),
	Title:   "Many large messages can be under way at the same time",
	Sends:   "40 messages of 100 kB each way at once, receives posted in another order",
	Expects: "every byte",
	Defects: []string{"LargeDamaged", "IsendWaits"}, Run: func(t *T) {
		const n, size = 40, 100_000
		var rs []Request
		ps := make([]*pending, n)
		for i := range n {
			k := i * 7 % n
			ps[k] = t.irecv(size, t.other(), k)
			rs = append(rs, ps[k].Request, t.isend(data(100*t.Rank()+i, size), t.other(), i))
		}
		t.waitAll(rs...)
		for i, p := range ps {
			t.expectBuffer("the message", p.recvBuf, data(100*t.other()+i, size))
		}
	},
}, {
	ID: "mpi/flood/both-ways", Cite: rule("mpi/3.5/3", "mpi/3.5/4"),
	Title:   "Two ranks can flood each other",
	Sends:   "600 sends of all sizes in each direction, begun before the first receive on either side",
	Expects: "all, in order, whole",
	Defects: []string{"Overtakes"}, Run: func(t *T) {
		const n = 600
		size := func(i int) int { return []int{16, 0, 700, 64, 5000, 20_000}[i%6] }
		rs := startAll(n, func(i int) Request { return t.isend(data(1000*t.Rank()+i, size(i)), t.other(), 1) })
		for i := range n {
			t.expectRecv(data(1000*t.other()+i, size(i)), t.other(), 1)
		}
		t.waitAll(rs...)
	},
}, {
	ID: "mpi/flood/two-communicators", Cite: rule("mpi/6.2/1", "mpi/3.5/3"),
	Title:   "A flood in one communicator does not keep another's messages",
	Sends:   "500 messages that wait in one communicator, a conversation in a second, then the flood is received",
	Expects: "both",
	Defects: []string{"DupSharesContext"}, Run: func(t *T) {
		other := t.dup()
		const n = 500
		if t.Rank() == 0 {
			rs := startAll(n, func(i int) Request { return t.isend(data(i, 100), 1, 5) })
			for i := range 10 {
				other.send(data(5000+i, 3000), 1, 5)
				other.expectRecv(data(6000+i, 3000), 1, 5)
			}
			t.waitAll(rs...)
		} else {
			for i := range 10 {
				other.expectRecv(data(5000+i, 3000), 0, 5)
				other.send(data(6000+i, 3000), 0, 5)
			}
			for i := range n {
				t.expectRecv(data(i, 100), 0, 5)
			}
		}
	},
}}
