package coll

import (
	"slices"
	"testing"
)

func TestNewNodesOrdersRanksByNode(t *testing.T) {
	n := NewNodes(6, func(rank int) int { return []int{5, 9, 5, 2, 9, 5}[rank] })
	if want := []int{0, 2, 5, 1, 4, 3}; !slices.Equal(n.order, want) {
		t.Errorf("the order is %v, want %v", n.order, want)
	}
	for at, rank := range n.order {
		if n.place[rank] != at {
			t.Errorf("rank %d has place %d, want %d", rank, n.place[rank], at)
		}
	}
	if n.count() != 3 || n.fewest() != 1 || n.most() != 3 || n.areConsecutive() {
		t.Errorf("%+v: %d nodes with %d to %d ranks, consecutive %v", n, n.count(), n.fewest(), n.most(), n.areConsecutive())
	}
}

// The messages of p ranks and those among them between n nodes, and the bytes of the latter, with vectors of
// b bytes.
func TestMessagesBetweenNodesEqualClosedForms(t *testing.T) {
	// The messages of an exchange of n ranks by recursive doubling.
	doubling := func(n int) int { f := (&Call{Size: n}).fold(); return 2*f.extra + f.pow2*f.rounds() }
	first := func(_, n, _ int) int { return n - 1 }
	for _, c := range []struct {
		op                              Op
		name                            string
		messages, betweenNodes, byBytes func(p, n, b int) int
	}{
		{Barrier, "smp", func(p, n, _ int) int { return 2*(p-n) + n*log2(n) }, func(_, n, _ int) int { return n * log2(n) }, func(_, _, _ int) int { return 0 }},
		{Bcast, "smp", edges, first, func(_, n, b int) int { return (n - 1) * b }},
		{Reduce, "smp", edges, first, func(_, n, b int) int { return (n - 1) * b }},
		{Bcast, "shared", func(p, n, _ int) int { return n - 1 + 2*(p-n) }, first, func(_, n, b int) int { return (n - 1) * b }},
		{Allreduce, "smp", func(p, n, _ int) int { return 2*(p-n) + doubling(n) }, func(_, n, _ int) int { return doubling(n) }, func(_, n, b int) int { return doubling(n) * b }},
	} {
		for _, p := range sizes() {
			for _, nodes := range placements(p) {
				s := scenario{op: c.op, size: p, bytes: 10 * elementBytes, root: p / 2, nodes: nodes}
				w, err := s.check(Find(c.op, c.name), 1)
				if err != nil {
					t.Fatal(err)
				}
				n := nodes.count()
				got, want := [3]int{w.messages, w.nodeMessages, w.nodeBytes}, [3]int{c.messages(p, n, s.bytes), c.betweenNodes(p, n, s.bytes), c.byBytes(p, n, s.bytes)}
				if got != want {
					t.Errorf("%v %s with %d ranks on %d nodes sends %v messages, messages and bytes between nodes, want %v", c.op, c.name, p, n, got, want)
				}
			}
		}
	}
}
