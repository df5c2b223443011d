package mpi

import "github.com/fabrictest/fabrictest/mpi"

var splitPrograms = programs{
	"mpi/split/colours": func(t *T) {
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
	"mpi/split/keys": func(t *T) {
		c := t.split(7, 100-10*t.Rank())
		c.expectPlace(3-t.Rank(), 4)
		r := c.isend(data(c.Rank(), 20), (c.Rank()+1)%4, 1)
		c.expectRecv(data((c.Rank()+3)%4, 20), (c.Rank()+3)%4, 1)
		t.wait(r)
	},
	"mpi/split/equal-keys": func(t *T) {
		c := t.split(0, 1-t.Rank()%2)
		c.expectPlace([]int{2, 0, 3, 1, 4}[t.Rank()], 5)
		c.expectUsable()
	},
	"mpi/split/negative-keys": func(t *T) {
		c := t.split(1, []int{5, -1, 0, -1000}[t.Rank()])
		c.expectPlace([]int{3, 1, 2, 0}[t.Rank()], 4)
		c.expectUsable()
	},
	"mpi/split/undefined": func(t *T) {
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
	"mpi/split/nested": func(t *T) {
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
	"mpi/split/ranks-of-the-new": func(t *T) {
		c := t.split(t.Rank()/2, 0)
		t.mustFail("Send", c.Send(nil, 2, 1), mpi.ErrRank)
		_, err := c.Irecv(nil, 3, 1)
		t.mustFail("Irecv", err, mpi.ErrRank)
		c.expectUsable()
		t.expectUsable()
	},
	"mpi/split/by-host": func(t *T) {
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
	"mpi/split/collectives-apart": func(t *T) {
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
	"mpi/split/colours-are-not-negative": func(t *T) {
		_, err := t.Split(-7, 0)
		t.mustFail("Split", err, mpi.ErrArg)
		t.expectUsable()
	},
}
