package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

var orderCases = []Case{{
	ID: "mpi/order/same-envelope", Cite: rule("mpi/3.5/1"),
	Title:   "Messages of one envelope are received in the order in which they were sent",
	Sends:   "2500 sends of 64 bytes with one tag, one at a time",
	Expects: "the contents in that order",
	Defects: []string{"Overtakes"}, Run: func(t *T) {
		for i := range 2500 {
			t.onRank(0, func() { t.send(data(i, 64), 1, 7) })
			t.onRank(1, func() { t.expectRecv(data(i, 64), 0, 7) })
		}
	},
}, {
	ID: "mpi/order/small-behind-large", Cite: rule("mpi/3.5/1"),
	Title:   "A small message does not overtake a large one",
	Sends:   "pairs of a large and a small message, both under way when the first is received",
	Expects: "the large one first",
	Defects: []string{"SmallOvertakes"}, Run: byRank(func(t *T) {
		var rs []Request
		for i := range 4 {
			rs = append(rs, t.isend(data(2*i, largeSize), 1, 3), t.isend(data(2*i+1, 16), 1, 3))
		}
		t.waitAll(rs...)
	}, func(t *T) {
		t.idle()
		for i := range 4 {
			t.expectRecv(data(2*i, largeSize), 0, 3)
			t.expectRecv(data(2*i+1, 16), 0, 3)
		}
	}),
}, {
	ID: "mpi/order/large-behind-small", Cite: rule("mpi/3.5/1"),
	Title:   "A large message does not overtake a small one, or a large one",
	Sends:   "receives posted, then pairs of a small and a large message; a large message, then three receives, then two large messages",
	Expects: "each in the receive whose turn it is",
	Defects: []string{"LargeOvertakes"}, Run: byRank(func(t *T) {
		t.awaitSignal(1)
		for i := range 4 {
			a, b := t.isend(data(2*i, 16), 1, 3), t.isend(data(2*i+1, largeSize), 1, 3)
			t.waitAll(b, a)
		}
		early := t.isend(data(0, largeSize), 1, 4)
		t.awaitSignal(1)
		t.waitAll(early, t.isend(data(1, largeSize), 1, 4), t.isend(data(2, largeSize), 1, 4))
	}, func(t *T) {
		ps := startAll(8, func(int) *pending { return t.irecv(largeSize, 0, 3) })
		t.signal(0)
		for i, p := range ps {
			n := 16
			if i%2 == 1 {
				n = largeSize
			}
			t.expectWait(p, data(i, n))
		}
		t.idle() // the first of three has arrived before its receive
		ps = startAll(3, func(int) *pending { return t.irecv(largeSize, 0, 4) })
		t.signal(0)
		for i, p := range ps {
			t.expectWait(p, data(i, largeSize))
		}
	}),
}, {
	ID: "mpi/order/sizes-mixed", Cite: rule("mpi/3.5/1"),
	Title:   "Order holds whatever the sizes of messages are",
	Sends:   "sends of 0 bytes to 128 KiB, in an order without order, all begun at once",
	Expects: "the contents in the order of the sends",
	Defects: []string{"SmallOvertakes", "LargeOvertakes"}, Run: func(t *T) {
		sizes := make([]int, 48)
		for i := range sizes {
			sizes[i] = []int{0, 8, 100, 1024, 5000, 8192, 16_384, 40_000, 131_072}[i*i%9]
		}
		t.expectInOrder(sizes)
	},
}, {
	ID: "mpi/order/modes-mixed", Cite: rule("mpi/3.5/1"),
	Title:   "Order holds between sends of all modes",
	Sends:   "standard, synchronous and buffered sends by turns, none waited for",
	Expects: "the contents in the order of the sends",
	Defects: []string{"SyncOvertaken"}, Run: func(t *T) {
		const n = 24
		if t.Rank() == 0 {
			t.must("AttachBuffer", t.w.AttachBuffer(n*1000))
			t.waitAll(startAll(n, func(i int) Request {
				send := []func([]byte, int, int) (Request, error){t.Issend, t.Isend, t.Ibsend}[i%3]
				return started(send(data(i, 100), 1, 5))(t, "a send")
			})...)
			t.must("DetachBuffer", t.w.DetachBuffer())
		} else {
			for i := range n {
				t.expectRecv(data(i, 100), 0, 5)
			}
		}
	},
}, {
	ID: "mpi/order/posted-receives", Cite: rule("mpi/3.5/2"),
	Title:   "Receives of one envelope are satisfied in the order in which they were posted",
	Sends:   "20 receives posted, then 20 messages",
	Expects: "the i-th message in the i-th receive",
	Defects: []string{"PostedLastFirst"}, Run: byRank(func(t *T) {
		t.awaitSignal(1)
		for i := range 20 {
			t.send(data(i, 32), 1, 9)
		}
	}, func(t *T) {
		ps := startAll(20, func(int) *pending { return t.irecv(32, 0, 9) })
		t.signal(0)
		for i := range ps {
			i = len(ps) - 1 - i // waiting does not decide
			t.expectWait(ps[i], data(i, 32))
		}
	}),
}, {
	ID: "mpi/order/wildcard-posted-first", Cite: rule("mpi/3.5/2"),
	Title:   "A receive with wildcards that was posted first gets the message, not an exact one behind it",
	Sends:   "a receive from anybody of any tag, then an exact one; two messages",
	Expects: "the first message in the first receive",
	Defects: []string{"ExactFirst", "PostedLastFirst"}, Run: byRank(func(t *T) {
		t.expectRecv(nil, 1, signalTag)
		t.send(data(1, 8), 1, 7)
		t.send(data(2, 8), 1, 7)
	}, func(t *T) {
		wild := t.irecv(8, mpi.AnySource, mpi.AnyTag)
		exact := t.irecv(8, 0, 7)
		t.send(nil, 0, signalTag)
		st := t.expectWait(wild, data(1, 8))
		t.expectStatus("the wildcard's", st, 0, 7, 8)
		t.expectWait(exact, data(2, 8))
	}),
}, {
	ID: "mpi/order/exact-posted-first", Cite: rule("mpi/3.5/2"),
	Title:   "An exact receive that was posted first gets the message, not one with wildcards behind it",
	Sends:   "an exact receive, then ones with either wildcard; three messages",
	Expects: "each in its turn",
	Defects: []string{"WildFirst", "PostedLastFirst"}, Run: byRank(func(t *T) {
		t.expectRecv(nil, 1, signalTag)
		for i := range 3 {
			t.send(data(i, 8), 1, 7)
		}
	}, func(t *T) {
		ps := []*pending{t.irecv(8, 0, 7), t.irecv(8, mpi.AnySource, 7), t.irecv(8, 0, mpi.AnyTag)}
		t.send(nil, 0, signalTag)
		for i, p := range ps {
			t.expectStatus("the receive", t.expectWait(p, data(i, 8)), 0, 7, 8)
		}
	}),
}, {
	ID: "mpi/order/unexpected-by-any-tag", Cite: rule("mpi/3.5/1"),
	Title:   "Receives of any tag get what came unexpected in the order of sending, not of tags",
	Sends:   "messages with falling tags, all there before the first receive",
	Expects: "falling tags",
	Defects: []string{"UnexpectedByTag", "UnexpectedLastFirst"}, Run: func(t *T) {
		t.sendUnexpected(20, func(i int) Request { return t.isend(data(i, 24), 1, 100-i) }, func() {
			for i := range 20 {
				st := t.expectRecv(data(i, 24), 0, mpi.AnyTag)
				t.expectStatus("a receive of any tag", st, 0, 100-i, 24)
			}
		})
	},
}, {
	ID: "mpi/order/tags-choose", Cite: rule("mpi/3.2.4/1"),
	Title:   "A receive takes the message with its tag, over others that came before",
	Sends:   "sends with tags 0 to 9, receives from 9 to 0",
	Expects: "each message by its tag",
	Defects: []string{"TagIgnored"}, Run: byRank(func(t *T) {
		t.waitAll(startAll(10, func(i int) Request { return t.isend(data(i, 48), 1, i) })...)
	}, func(t *T) {
		for i := 9; i >= 0; i-- {
			t.expectRecv(data(i, 48), 0, i)
		}
	}),
}, {
	ID: "mpi/order/posted-and-unexpected", Cite: rule("mpi/3.5/1", "mpi/3.5/2"),
	Title:   "Order holds between messages that find a receive and those that do not",
	Sends:   "three receives posted, eight messages, five more receives",
	Expects: "the contents in order",
	Defects: []string{"Overtakes", "UnexpectedLastFirst"}, Run: func(t *T) {
		side := t.dup()
		if t.Rank() == 1 {
			ps := []*pending{t.irecv(64, 0, 2), t.irecv(64, 0, 2), t.irecv(64, 0, 2)}
			side.signal(0)
			side.awaitSignal(0)
			t.idle()
			for range 5 {
				ps = append(ps, t.irecv(64, 0, 2))
			}
			for i, p := range ps {
				t.expectWait(p, data(i, 60))
			}
		} else {
			side.awaitSignal(1)
			rs := startAll(8, func(i int) Request { return t.isend(data(i, 60), 1, 2) })
			side.signal(1)
			t.waitAll(rs...)
		}
	},
}, {
	ID: "mpi/order/of-each-sender", Cite: rule("mpi/3.5/1"), Setup: ranks(4),
	Title:   "Receives from anybody get the messages of each sender in its order",
	Sends:   "three ranks send 40 messages each to one, which receives from anybody",
	Expects: "the next of its sender, every time, and all in the end",
	Defects: []string{"Overtakes"}, Run: func(t *T) {
		const n = 40
		if t.Rank() > 0 {
			for i := range n {
				t.send(data(t.Rank()*1000+i, 30), 0, 6)
			}
			return
		}
		var next [4]int
		for range 3 * n {
			r := newGuardedBuf(30)
			st := result(t.Recv(r.buf, mpi.AnySource, 6))(t, "Recv")
			t.check(st.Source > 0 && st.Source < 4, "a source from 1 to 3", "%+v", st)
			t.expectBuffer(fmt.Sprintf("message %d of rank %d", next[st.Source], st.Source), r, data(st.Source*1000+next[st.Source], 30))
			next[st.Source]++
		}
		t.check(next == [4]int{0, n, n, n}, "40 messages of each", "%v", next)
	},
}, {
	ID: "mpi/order/kinds-of-receives", Cite: rule("mpi/3.5/1"),
	Title:   "Order holds between receives of all kinds",
	Sends:   "messages of one envelope, received by Recv, Irecv, after a probe, by a matched probe and by a persistent request in turn",
	Expects: "the contents in order",
	Defects: []string{"Overtakes", "UnexpectedLastFirst"}, Run: func(t *T) {
		const n = 20
		if t.Rank() == 0 {
			t.waitAll(startAll(n, func(i int) Request { return t.isend(data(i, 50), 1, 2) })...)
		} else {
			persistent := t.recvInit(50, 0, 2)
			for i := range n {
				want := data(i, 50)
				switch i % 5 {
				case 0:
					t.expectRecv(want, 0, 2)
				case 1:
					t.expectWait(t.irecv(50, 0, 2), want)
				case 2:
					result(t.Probe(0, 2))(t, "Probe")
					t.expectRecv(want, 0, 2)
				case 3:
					m, _ := result2(t.Mprobe(0, 2))(t, "Mprobe")
					t.expectMessage(m, want)
				case 4:
					t.start(persistent)
					t.expectWait(persistent, want)
				}
			}
		}
	},
}, {
	ID: "mpi/order/waits-do-not-decide", Cite: rule("mpi/3.7.4/1"),
	Title:   "Non-blocking sends are ordered by their beginnings, not by the waits for them",
	Sends:   "sends of small and large messages, waited for from last to first",
	Expects: "the contents in the order of the beginnings",
	Defects: []string{"Overtakes", "LargeOvertakes"}, Run: func(t *T) {
		const n = 12
		size := func(i int) int { return 64 + i%2*largeSize }
		if t.Rank() == 0 {
			rs := startAll(n, func(i int) Request { return t.isend(data(i, size(i)), 1, 2) })
			for i := n - 1; i >= 0; i-- {
				t.wait(rs[i])
			}
		} else {
			ps := startAll(n, func(int) *pending { return t.irecv(largeSize+64, 0, 2) })
			for i := n - 1; i >= 0; i-- {
				t.expectWait(ps[i], data(i, size(i)))
			}
		}
	},
}, {
	ID: "mpi/order/thousands", Cite: rule("mpi/3.5/1"),
	Title:   "Order holds over thousands of messages",
	Sends:   "3000 small messages, in windows of 100",
	Expects: "each with the next number",
	Defects: []string{"OvertakesRarely"}, Run: func(t *T) {
		const n, window = 3000, 100
		for at := 0; at < n; at += window {
			var rs []Request
			var ps []*pending
			for i := range window {
				t.onRank(0, func() { rs = append(rs, t.isend(data(at+i, 16), 1, 2)) })
				t.onRank(1, func() { ps = append(ps, t.irecv(16, 0, 2)) })
			}
			t.waitAll(rs...)
			for i, p := range ps {
				t.expectWait(p, data(at+i, 16))
			}
		}
	},
}, {
	ID: "mpi/order/persistent-sends", Cite: rule("mpi/3.9/1", "mpi/3.5/1"),
	Title:   "Started persistent sends are ordered as others are",
	Sends:   "two persistent sends and an Isend, begun by turns",
	Expects: "the contents in the order of the beginnings",
	Defects: []string{"Overtakes"}, Run: byRank(func(t *T) {
		a, b := make([]byte, 40), make([]byte, 40)
		pa := started(t.SendInit(a, 1, 2))(t, "SendInit")
		pb := started(t.SendInit(b, 1, 2))(t, "SendInit")
		for i := range 10 {
			copy(a, data(3*i, 40))
			copy(b, data(3*i+2, 40))
			t.start(pa)
			c := t.isend(data(3*i+1, 40), 1, 2)
			t.start(pb)
			t.waitAll(pb, c, pa)
		}
	}, func(t *T) {
		t.idle()
		for i := range 30 {
			t.expectRecv(data(i, 40), 0, 2)
		}
	}),
}}
