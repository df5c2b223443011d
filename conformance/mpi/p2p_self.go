package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

var selfCases = []Case{{
	ID: "mpi/self/all-sizes", Cite: rule("mpi/3.2.4/5"),
	Title:   "A rank can send to itself, messages of all sizes",
	Sends:   "Isend to oneself before the receive, and behind it",
	Expects: "the contents",
	Defects: []string{"SelfLost", "LargeDamaged"}, Run: func(t *T) {
		me := t.Rank()
		for i, n := range sizesUpTo(maxSize) {
			d := data(i, n)
			if i%2 == 0 {
				t.expectExchange(d, me, d, me)
				continue
			}
			p := t.irecv(n, me, 1)
			r := t.isend(d, me, 1)
			t.expectWait(p, d)
			t.wait(r)
		}
	},
}, {
	ID: "mpi/self/in-order", Cite: rule("mpi/3.5/1", "mpi/3.2.4/1"), Setup: ranks(1),
	Title:   "Messages to oneself are in order, and chosen by tag",
	Sends:   "messages of two tags by turns, received by tag",
	Expects: "each tag's in order",
	Defects: []string{"Overtakes", "TagIgnored"}, Run: func(t *T) {
		rs := startAll(20, func(i int) Request { return t.isend(data(i, someSizes[i%4]), 0, i%2) })
		for tag := 1; tag >= 0; tag-- {
			for i := tag; i < 20; i += 2 {
				t.expectRecv(data(i, someSizes[i%4]), 0, tag)
			}
		}
		t.waitAll(rs...)
	},
}, {
	ID: "mpi/self/sendrecv", Cite: rule("mpi/3.10/1"), Setup: ranks(1),
	Title:   "Sendrecv with oneself does not wait for anybody",
	Sends:   "Sendrecv and SendrecvReplace of a rank with itself, small and large",
	Expects: "the contents",
	Defects: []string{"SendrecvInTurn", "ReplaceSendsLate"}, Run: func(t *T) {
		for i, n := range someSizes {
			t.expectSendrecv(data(i, n), 0, i, data(i, n), 0, i)
			b := data(i, n)
			st := result(t.SendrecvReplace(b, 0, i, 0, i))(t, "SendrecvReplace")
			t.expectStatus("SendrecvReplace", st, 0, i, n)
			t.expectEqual("the buffer", b, data(i, n))
		}
	},
}, {
	ID: "mpi/self/probed", Cite: rule("mpi/3.8.1/1"), Setup: ranks(1),
	Title:   "A rank can probe what it has sent to itself",
	Sends:   "a message of each size, probed before it is received",
	Expects: "its envelope and count, then its content",
	Defects: []string{"SelfLost", "ProbeCutsCount"}, Run: func(t *T) {
		for i, n := range someSizes {
			r := t.isend(data(i, n), 0, i)
			st := result(t.Probe(mpi.AnySource, mpi.AnyTag))(t, "Probe")
			t.expectStatus("the probe", st, 0, i, n)
			t.expectRecv(data(i, n), 0, i)
			t.wait(r)
		}
	},
}, {
	ID: "mpi/self/own-communicator", Cite: rule("mpi/6.2.4/1"),
	Title:   "The communicator of a rank alone has one rank, and messages of its own",
	Sends:   "messages to oneself in the world and in Self, received the other way round",
	Expects: "each in its communicator",
	Defects: []string{"SelfIsWorld"}, Run: func(t *T) {
		self := t.inComm(t.w.Self())
		t.check(self.Rank() == 0 && self.Size() == 1, "rank 0 of 1", "%d of %d", self.Rank(), self.Size())
		a := t.isend(data(1, 20), t.Rank(), 1)
		b := self.isend(data(2, 20), 0, 1)
		t.w.Compute(time.Millisecond)
		self.expectRecv(data(2, 20), mpi.AnySource, mpi.AnyTag)
		t.expectRecv(data(1, 20), t.Rank(), 1)
		t.waitAll(a, b)
		self.expectUsable()
	},
}}
