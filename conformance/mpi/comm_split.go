package mpi

import "github.com/fabrictest/fabrictest/mpi"

var splitCases = []Case{{
	ID: "mpi/split/colours", Cite: rule("mpi/6.4.2/3"), Setup: ranks(5),
	Title:   "Ranks with one colour are together, and apart from the others",
	Sends:   "colours by rank modulo 2; in each group everybody talks to everybody",
	Expects: "groups of 3 and 2, and messages that stay in them",
	Defects: []string{"ColorsMixed"}, Run: func(t *T) {
		c := t.split(t.Rank()%2, 0)
		t.check(c != nil, "a communicator", "nil")
		c.expectPlace(t.Rank()/2, 3-t.Rank()%2)
		for k := range c.Size() {
			c.expectExchange(data(t.Rank(), 30), k, data(2*k+t.Rank()%2, 30), k)
		}
		c.expectUsable()
	},
}, {
	ID: "mpi/split/keys", Cite: rule("mpi/6.4.2/4"), Setup: ranks(4),
	Title:   "Keys decide the order of ranks",
	Sends:   "keys that fall with the rank; a message to rank 0 of the new communicator",
	Expects: "the order turned round, the message at the old last rank",
	Defects: []string{"KeysIgnored"}, Run: func(t *T) {
		c := t.split(7, 100-10*t.Rank())
		c.expectPlace(3-t.Rank(), 4)
		c.expectExchange(data(c.Rank(), 20), (c.Rank()+1)%4, data((c.Rank()+3)%4, 20), (c.Rank()+3)%4)
	},
}, {
	ID: "mpi/split/equal-keys", Cite: rule("mpi/6.4.2/4"), Setup: ranks(5),
	Title:   "Ranks with equal keys are in their old order",
	Sends:   "keys 1, 0, 1, 0, 1",
	Expects: "the order 1, 3, 0, 2, 4",
	Defects: []string{"TiesReversed"}, Run: func(t *T) {
		c := t.split(0, 1-t.Rank()%2)
		c.expectPlace([]int{2, 0, 3, 1, 4}[t.Rank()], 5)
		c.expectUsable()
	},
}, {
	ID: "mpi/split/negative-keys", Cite: rule("mpi/6.4.2/4"), Setup: ranks(4),
	Title:   "Keys may be negative",
	Sends:   "keys 5, -1, 0, -1000",
	Expects: "the order 3, 1, 2, 0",
	Defects: []string{"NegativeKeysLast", "KeysIgnored"}, Run: func(t *T) {
		c := t.split(1, []int{5, -1, 0, -1000}[t.Rank()])
		c.expectPlace([]int{3, 1, 2, 0}[t.Rank()], 4)
		c.expectUsable()
	},
}, {
	ID: "mpi/split/undefined", Cite: rule("mpi/6.4.2/5"), Setup: ranks(4),
	Title:   "A rank without a colour gets no communicator",
	Sends:   "one rank with Undefined",
	Expects: "nil there, three ranks elsewhere",
	Defects: []string{"UndefinedJoins"}, Run: func(t *T) {
		color := 0
		if t.Rank() == 1 {
			color = mpi.Undefined
		}
		c := t.split(color, 0)
		if t.Rank() == 1 {
			t.check(c == nil, "no communicator", "one")
		} else {
			t.check(c != nil, "a communicator", "nil")
			c.expectPlace([]int{0, -1, 1, 2}[t.Rank()], 3)
			c.expectUsable()
		}
		t.expectUsable()
	},
}, {
	ID: "mpi/split/nested", Cite: rule("mpi/6.4.2/3", "mpi/6.2/2"), Setup: ranks(6),
	Title:   "Communicators can be split further, and ranks are those of the communicator at hand",
	Sends:   "six ranks into halves, each half into single ranks and a pair; messages from anybody in the halves",
	Expects: "ranks, sizes, and sources by the half's numbers",
	Defects: []string{"SourceIsOfWorld", "ColorsMixed"}, Run: func(t *T) {
		half := t.split(t.Rank()/3, 0)
		half.expectPlace(t.Rank()%3, 3)
		k := half.Rank()
		r := half.isend(data(t.Rank(), 25), (k+1)%3, 4)
		st := half.expectRecv(data(t.Rank()/3*3+(k+2)%3, 25), mpi.AnySource, 4)
		half.expectStatus("the receive", st, (k+2)%3, 4, 25)
		t.wait(r)
		part := half.split(min(k, 1), -k)
		if k == 0 {
			part.expectPlace(0, 1)
		} else {
			part.expectPlace(2-k, 2)
		}
		part.expectUsable()
		half.expectUsable()
	},
}, {
	ID: "mpi/split/ranks-of-the-new", Cite: rule("mpi/6.2/2", "mpi/8.4/1"), Setup: ranks(4),
	Title:   "Ranks beyond a communicator's size are no ranks in it, though they are in its parent",
	Sends:   "in a communicator of two ranks a send to rank 2",
	Expects: "ErrRank",
	Defects: []string{"RanksUnchecked"}, Run: func(t *T) {
		c := t.split(t.Rank()/2, 0)
		t.mustFail("Send", c.Send(nil, 2, 1), mpi.ErrRank)
		t.mustFail("Irecv", errorOf(c.Irecv(nil, 3, 1)), mpi.ErrRank)
		c.expectUsable()
		t.expectUsable()
	},
}, {
	ID: "mpi/split/by-host", Cite: rule("mpi/6.4.2/6"), Setup: inPairs(5),
	Title:   "SplitNode puts ranks of one host together, and Node tells hosts apart",
	Sends:   "five ranks, two a host, keys turned round",
	Expects: "groups of 2, 2 and 1 in turned order, and the same by Node",
	Defects: []string{"NodesMixed", "NodeIsRank"}, Run: func(t *T) {
		var mates []int
		for k := range t.Size() {
			if t.Node(k) == t.Node(t.Rank()) {
				mates = append(mates, k)
			}
		}
		c := result(t.SplitNode(-t.Rank()))(t, "SplitNode")
		t.check(c != nil, "a communicator", "nil")
		n := t.inComm(c)
		want := 2
		if t.Rank() == 4 {
			want = 1
		}
		t.check(len(mates) == want, "two ranks on each host but the last", "%v", mates)
		n.expectPlace(want-1-t.Rank()%2*(want-1), want)
		for k := range n.Size() {
			t.check(n.Node(k) == t.Node(t.Rank()), "all on one host", "rank %d on %d", k, n.Node(k))
		}
		n.expectUsable()
	},
}, {
	ID: "mpi/split/collectives-apart", Cite: rule("mpi/5.13/1", "mpi/6.2/1"), Setup: ranks(6),
	Title:   "Collective operations of different communicators do not mix",
	Sends:   "halves reduce different numbers of times while the others do something else; then all together",
	Expects: "the sums of each half",
	Defects: []string{"ColorsMixed", "ReduceMissesLast"}, Run: func(t *T) {
		half := t.split(t.Rank()%2, 0)
		base := uint64(0)
		for k := range 3 {
			base += uint64(2*k + t.Rank()%2)
		}
		for i := range 3 + 4*(t.Rank()%2) {
			b := word(uint64(t.Rank() + i))
			half.must("Allreduce", half.Allreduce(mpi.InPlace, b, mpi.Uint64, mpi.Sum))
			half.check(number(b) == base+uint64(3*i), "the sum of the half", "%d, not %d", number(b), base+uint64(3*i))
		}
		b := word(uint64(t.Rank()))
		t.must("Allreduce", t.Allreduce(mpi.InPlace, b, mpi.Uint64, mpi.Sum))
		t.check(number(b) == 15, "15 as the sum of all", "%d", number(b))
	},
}, {
	ID: "mpi/split/colours-are-not-negative", Cite: rule("mpi/6.4.2/5"),
	Title:   "A negative colour that is not Undefined is an error",
	Sends:   "Split with the colour -7 on all ranks",
	Expects: "ErrArg on all, and that everything goes on",
	Defects: []string{"ColorsUnchecked", "ErrorWedges"}, Run: func(t *T) {
		t.mustFail("Split", errorOf(t.Split(-7, 0)), mpi.ErrArg)
		t.expectUsable()
	},
}}
