package mpi

import "github.com/fabrictest/fabrictest/mpi"

var splitCases = []Case{{
	ID: "mpi/split/colours", Title: "Ranks with one colour are together, and apart from the others",
	Cite: rule("6.4.2", "mpi/6.4.2/3"), Setup: ranks(5), Defects: []string{"ColorsMixed"},
	Sends: "colours by rank modulo 2; in each group everybody talks to everybody", Expects: "groups of 3 and 2, and messages that stay in them",
	Run: func(t *T) {
		c := t.split(t.Rank()%2, 0)
		t.check(c != nil, "a communicator", "nil")
		c.expectPlace(t.Rank()/2, 3-t.Rank()%2)
		for k := range c.Size() {
			r := c.isend(data(t.Rank(), 30), k, 1)
			c.expectRecv(data(2*k+t.Rank()%2, 30), k, 1)
			t.wait(r)
		}
		c.expectUsable()
	},
}, {
	ID: "mpi/split/keys", Title: "Keys decide the order of ranks",
	Cite: rule("6.4.2", "mpi/6.4.2/4"), Setup: ranks(4), Defects: []string{"KeysIgnored"},
	Sends: "keys that fall with the rank; a message to rank 0 of the new communicator", Expects: "the order turned round, the message at the old last rank",
	Run: func(t *T) {
		c := t.split(7, 100-10*t.Rank())
		c.expectPlace(3-t.Rank(), 4)
		r := c.isend(data(c.Rank(), 20), (c.Rank()+1)%4, 1)
		c.expectRecv(data((c.Rank()+3)%4, 20), (c.Rank()+3)%4, 1)
		t.wait(r)
	},
}, {
	ID: "mpi/split/equal-keys", Title: "Ranks with equal keys are in their old order",
	Cite: rule("6.4.2", "mpi/6.4.2/4"), Setup: ranks(5), Defects: []string{"TiesReversed"},
	Sends: "keys 1, 0, 1, 0, 1", Expects: "the order 1, 3, 0, 2, 4",
	Run: func(t *T) {
		c := t.split(0, 1-t.Rank()%2)
		c.expectPlace([]int{2, 0, 3, 1, 4}[t.Rank()], 5)
		c.expectUsable()
	},
}, {
	ID: "mpi/split/negative-keys", Title: "Keys may be negative",
	Cite: rule("6.4.2", "mpi/6.4.2/4"), Setup: ranks(4), Defects: []string{"NegativeKeysLast", "KeysIgnored"},
	Sends: "keys 5, -1, 0, -1000", Expects: "the order 3, 1, 2, 0",
	Run: func(t *T) {
		c := t.split(1, []int{5, -1, 0, -1000}[t.Rank()])
		c.expectPlace([]int{3, 1, 2, 0}[t.Rank()], 4)
		c.expectUsable()
	},
}, {
	ID: "mpi/split/undefined", Title: "A rank without a colour gets no communicator",
	Cite: rule("6.4.2", "mpi/6.4.2/5"), Setup: ranks(4), Defects: []string{"UndefinedJoins"},
	Sends: "one rank with Undefined", Expects: "nil there, three ranks elsewhere",
	Run: func(t *T) {
		color := 0
		if t.Rank() == 1 {
			color = mpi.Undefined
		}
		c := t.split(color, 0)
		if t.Rank() == 1 {
			t.check(c == nil, "no communicator", "one of %d ranks", size(c))
		} else {
			t.check(c != nil, "a communicator", "nil")
			c.expectPlace([]int{0, -1, 1, 2}[t.Rank()], 3)
			c.expectUsable()
		}
		t.expectUsable()
	},
}, {
	ID: "mpi/split/nested", Title: "Communicators can be split further, and ranks are those of the communicator at hand",
	Cite: rule("6.4.2", "mpi/6.4.2/3", "mpi/6.2/2"), Setup: ranks(6), Defects: []string{"SourceIsOfWorld", "ColorsMixed"},
	Sends: "six ranks into halves, each half into single ranks and a pair; messages from anybody in the halves", Expects: "ranks, sizes, and sources by the half's numbers",
	Run: func(t *T) {
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
	ID: "mpi/split/ranks-of-the-new", Title: "Ranks beyond a communicator's size are no ranks in it, though they are in its parent",
	Cite: rule("6.2", "mpi/6.2/2", "mpi/8.4/1"), Setup: ranks(4), Defects: []string{"RanksUnchecked"},
	Sends: "in a communicator of two ranks a send to rank 2", Expects: "ErrRank",
	Run: func(t *T) {
		c := t.split(t.Rank()/2, 0)
		t.mustFail("Send", c.Send(nil, 2, 1), mpi.ErrRank)
		_, err := c.Irecv(nil, 3, 1)
		t.mustFail("Irecv", err, mpi.ErrRank)
		c.expectUsable()
		t.expectUsable()
	},
}, {
	ID: "mpi/split/by-host", Title: "SplitNode puts ranks of one host together, and Node tells hosts apart",
	Cite: rule("6.4.2", "mpi/6.4.2/6"), Setup: inPairs(5), Defects: []string{"NodesMixed", "NodeIsRank"},
	Sends: "five ranks, two a host, keys turned round", Expects: "groups of 2, 2 and 1 in turned order, and the same by Node",
	Run: func(t *T) {
		var mates []int
		for k := range t.Size() {
			if t.Node(k) == t.Node(t.Rank()) {
				mates = append(mates, k)
			}
		}
		c, err := t.SplitNode(-t.Rank())
		t.must("SplitNode", err)
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
	ID: "mpi/split/collectives-apart", Title: "Collective operations of different communicators do not mix",
	Cite: rule("5.13", "mpi/5.13/1", "mpi/6.2/1"), Setup: ranks(6), Defects: []string{"ColorsMixed", "ReduceMissesLast"},
	Sends: "halves reduce different numbers of times while the others do something else; then all together", Expects: "the sums of each half",
	Run: func(t *T) {
		half := t.split(t.Rank()%2, 0)
		base := uint64(0)
		for k := range 3 {
			base += uint64(2*k + t.Rank()%2)
		}
		for i := range 3 + 4*(t.Rank()%2) {
			b := word(uint64(t.Rank() + i))
			half.must("Allreduce", half.Allreduce(b, mpi.Uint64, mpi.Sum))
			half.check(number(b) == base+uint64(3*i), "the sum of the half", "%d, not %d", number(b), base+uint64(3*i))
		}
		b := word(uint64(t.Rank()))
		t.must("Allreduce", t.Allreduce(b, mpi.Uint64, mpi.Sum))
		t.check(number(b) == 15, "15 as the sum of all", "%d", number(b))
	},
}, {
	ID: "mpi/split/colours-are-not-negative", Title: "A negative colour that is not Undefined is an error",
	Cite: rule("6.4.2", "mpi/6.4.2/5"), Defects: []string{"ColorsUnchecked", "ErrorWedges"},
	Sends: "Split with the colour -7 on all ranks", Expects: "ErrArg on all, and that everything goes on",
	Run: func(t *T) {
		_, err := t.Split(-7, 0)
		t.mustFail("Split", err, mpi.ErrArg)
		t.expectUsable()
	},
}}
