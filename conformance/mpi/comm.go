package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// split calls Split (MPI_Comm_split), which must not fail. It returns nil for the colour Undefined.
func (t *T) split(color, key int) *T {
	c := result(t.Split(color, key))(t, "Split")
	if c == nil {
		return nil
	}
	return t.inComm(c)
}

// expectPlace ends the rank unless it has the number rank in a communicator of size ranks.
func (t *T) expectPlace(rank, size int) {
	t.check(t.Rank() == rank && t.Size() == size, fmt.Sprintf("rank %d of %d", rank, size), "rank %d of %d", t.Rank(), t.Size())
}

var commCases = []Case{{
	ID: "mpi/comm/contexts-apart", Cite: rule("mpi/3.2.3/1", "mpi/6.2/1"),
	Title:   "A message is received only in the communicator in which it was sent",
	Sends:   "the same tag in three communicators of the same ranks, received in another order",
	Expects: "each its own content, small and large",
	Defects: []string{"DupSharesContext", "WorldMatches"}, Run: func(t *T) {
		cs := []*T{t, t.dup(), t.dup()}
		for _, n := range []int{20, largeSize} {
			if t.Rank() == 0 {
				t.waitAll(startAll(len(cs), func(i int) Request { return cs[i].isend(data(i, n), 1, 5) })...)
			} else {
				t.idle()
				for _, i := range []int{2, 0, 1} {
					cs[i].expectRecv(data(i, n), 0, 5)
				}
			}
		}
	},
}, {
	ID: "mpi/comm/posted-in-one-only", Cite: rule("mpi/3.2.3/1"),
	Title:   "A receive that is posted in one communicator takes nothing of another",
	Sends:   "a receive of anything posted in a duplicate, then a message in the original, then one in the duplicate",
	Expects: "each where it belongs",
	Defects: []string{"DupSharesContext", "WorldMatches"}, Run: func(t *T) {
		other := t.dup()
		if t.Rank() == 1 {
			p := other.irecv(30, mpi.AnySource, mpi.AnyTag)
			t.signal(0)
			t.expectRecv(data(1, 30), 0, 7)
			t.expectPending("the receive in the duplicate", p)
			t.signal(0)
			t.expectStatus("the receive", t.expectWait(p, data(2, 30)), 0, 7, 30)
		} else {
			t.awaitSignal(1)
			t.send(data(1, 30), 1, 7)
			t.awaitSignal(1)
			other.send(data(2, 30), 1, 7)
		}
	},
}, {
	ID: "mpi/comm/dup-is-alike", Cite: rule("mpi/6.4.2/1"), Setup: ranks(4),
	Title:   "A duplicate has the same ranks in the same order",
	Sends:   "a duplicate and its duplicate; in both everybody talks to everybody",
	Expects: "rank and size of the original, and the right partners",
	Defects: []string{"DupReverses"}, Run: func(t *T) {
		a := t.dup()
		b := a.dup()
		for _, c := range []*T{a, b} {
			c.expectPlace(t.Rank(), t.Size())
			for k := range t.Size() {
				c.expectExchange(data(10*t.Rank()+k, 40), k, data(10*k+t.Rank(), 40), k)
			}
		}
		a.expectUsable()
	},
}, {
	ID: "mpi/comm/dup-during-traffic", Cite: rule("mpi/6.4.2/2"), Setup: ranks(3),
	Title:   "Communicators can be made while messages are under way",
	Sends:   "receives posted and sends begun, then Dup and Split, then the messages in all three",
	Expects: "each content in its communicator",
	Defects: []string{"SplitDropsReceives"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		next, last := (me+1)%n, (me+n-1)%n
		p := t.irecv(largeSize, last, 1)
		early := t.irecv(50, last, 2)
		r := t.isend(data(me, largeSize), next, 1)
		a := t.dup()
		b := t.split(0, 0)
		ra, rb := a.isend(data(10+me, 50), next, 1), b.isend(data(20+me, 50), next, 1)
		t.send(data(30+me, 50), next, 2)
		b.expectRecv(data(20+last, 50), last, 1)
		a.expectRecv(data(10+last, 50), last, 1)
		t.expectWait(early, data(30+last, 50))
		t.expectWait(p, data(last, largeSize))
		t.waitAll(r, ra, rb)
	},
}, {
	ID: "mpi/comm/many", Cite: rule("mpi/6.2/1"),
	Title:   "Dozens of communicators keep their messages apart",
	Sends:   "30 duplicates, a message in each, received from the last to the first",
	Expects: "each its own; then all are freed",
	Defects: []string{"DupSharesContext"}, Run: func(t *T) {
		cs := make([]*T, 30)
		for i := range cs {
			cs[i] = t.dup()
		}
		rs := startAll(len(cs), func(i int) Request { return cs[i].isend(data(100*t.Rank()+i, 16), t.other(), 1) })
		for i := len(cs) - 1; i >= 0; i-- {
			cs[i].expectRecv(data(100*t.other()+i, 16), t.other(), 1)
		}
		t.waitAll(rs...)
		for _, c := range cs {
			t.must("Free", c.Free())
		}
		t.expectUsable()
	},
}, {
	ID: "mpi/comm/freed", Cite: rule("mpi/6.4.3/1"),
	Title:   "A communicator that was freed cannot be used, and its relatives can",
	Sends:   "a duplicate freed; sends, receives and a barrier in it, then in the original and another duplicate",
	Expects: "ErrComm in it; no harm elsewhere",
	Defects: []string{"FreedIsUsable", "FreeBreaksParent"}, Run: func(t *T) {
		a := t.dup()
		b := t.dup()
		t.must("Free", a.Free())
		t.mustFail("Send", a.Send(nil, t.other(), 1), mpi.ErrComm)
		t.mustFail("Irecv", errorOf(a.Irecv(nil, t.other(), 1)), mpi.ErrComm)
		t.mustFail("Dup", errorOf(a.Dup()), mpi.ErrComm)
		t.expectUsable()
		b.expectUsable()
	},
}, {
	ID: "mpi/comm/freed-during-traffic", Cite: rule("mpi/6.4.3/2"),
	Title:   "What is under way in a communicator that is freed completes",
	Sends:   "receives posted and sends begun, small and large, Free, then the waits",
	Expects: "the contents",
	Defects: []string{"FreeDrops"}, Run: func(t *T) {
		c := t.dup()
		p, q := c.irecv(64, t.other(), 1), c.irecv(largeSize, t.other(), 2)
		r, s := c.isend(data(t.Rank(), 64), t.other(), 1), c.isend(data(10+t.Rank(), largeSize), t.other(), 2)
		t.must("Free", c.Free())
		t.expectWait(p, data(t.other(), 64))
		t.expectWait(q, data(10+t.other(), largeSize))
		t.waitAll(r, s)
		t.expectUsable()
	},
}}
