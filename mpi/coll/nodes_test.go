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

// placed are the number of ranks, of nodes, of ranks on the node of the root, and of bytes of a block or vector.
type placed struct{ p, n, local, b int }

// The numbers of messages, of messages between nodes, and of bytes in these.
func TestMessagesBetweenNodesEqualClosedForms(t *testing.T) {
	// The messages of an exchange of n ranks by recursive doubling.
	doubling := func(n int) int { f := (&Call{Size: n}).fold(); return 2*f.extra + f.pow2*f.rounds() }
	none := func(placed) int { return 0 }
	tree := func(l placed) int { return l.n - 1 }
	treeBytes := func(l placed) int { return (l.n - 1) * l.b }
	edges := func(l placed) int { return l.p - 1 }
	log := func(l placed) int { return l.n * log2(l.n) }
	pairs := func(l placed) int { return l.n * (l.n - 1) }
	// A notification from each rank and one or two to it.
	overlapping := func(l placed) int { return (l.p - l.n) * (2 + min(1, l.n-1)) }
	// Each node receives the blocks of all others.
	nodeBlocks := func(l placed) int { return (l.n - 1) * l.p * l.b }
	for _, c := range []struct {
		op                              Op
		name                            string
		messages, betweenNodes, byBytes func(placed) int
	}{
		{Barrier, "smp", func(l placed) int { return 2*(l.p-l.n) + log(l) }, log, none},
		{Bcast, "smp", edges, tree, treeBytes},
		{Bcast, "shared", func(l placed) int { return tree(l) + 2*(l.p-l.n) }, tree, treeBytes},
		{Gather, "shared", func(l placed) int { return tree(l) + 2*(l.p-l.n) }, tree, func(l placed) int { return (l.p - l.local) * l.b }},
		{Reduce, "smp", edges, tree, treeBytes},
		{Allreduce, "smp", func(l placed) int { return 2*(l.p-l.n) + doubling(l.n) }, func(l placed) int { return doubling(l.n) }, func(l placed) int { return doubling(l.n) * l.b }},
		{Allgather, "smp-gather-bcast", func(l placed) int { return 2*tree(l) + 4*(l.p-l.n) }, func(l placed) int { return 2 * tree(l) }, nil},
		{Allgather, "smp-direct", func(l placed) int { return pairs(l) + overlapping(l) }, pairs, nodeBlocks},
		{Allgather, "smp-bruck", func(l placed) int { return log(l) + overlapping(l) }, log, nodeBlocks},
		{Allgather, "groups-1-ring", func(l placed) int { return pairs(l) + 2*(l.p-l.n) }, pairs, nodeBlocks},
		{Allgather, "groups-1-ring-direct", func(l placed) int { return pairs(l) + 2*(l.p-l.n) }, pairs, nodeBlocks},
		{Allgather, "gather-groups-direct", nil, pairs, nodeBlocks},
		{Allgather, "groups-1", func(l placed) int { return pairs(l) + 2*(l.p-l.n) }, pairs, nodeBlocks},
		{Allgather, "groups-1-direct", nil, pairs, nodeBlocks},
		{Allgather, "gather-groups", nil, pairs, nodeBlocks},
		{Allgather, "gather-groups-shared", nil, pairs, nodeBlocks},
		{Allgather, "groups-2", nil, func(l placed) int { return 2 * pairs(l) }, nodeBlocks},
		{Allgather, "groups-2-shared", nil, func(l placed) int { return 2 * pairs(l) }, nodeBlocks},
		{Allgather, "groups-2-direct", nil, func(l placed) int { return 2 * pairs(l) }, nodeBlocks},
		{Allgather, "groups-3", nil, func(l placed) int { return 3 * pairs(l) }, nodeBlocks},
		{Allgather, "groups-3-ring", nil, func(l placed) int { return 3 * pairs(l) }, nodeBlocks},
		{Allgather, "groups-4", nil, func(l placed) int { return 4 * pairs(l) }, nodeBlocks},
		{Allgather, "groups-4-shared", nil, func(l placed) int { return 4 * pairs(l) }, nodeBlocks},
		{Allgather, "groups-4-direct", nil, func(l placed) int { return 4 * pairs(l) }, nodeBlocks},
	} {
		for _, p := range sizes() {
			for _, nodes := range placements(p) {
				s := scenario{op: c.op, size: p, bytes: 10 * elementBytes, nodes: nodes}
				if c.op == Bcast || c.op == Gather || c.op == Reduce {
					s.root = p / 2
				}
				alg := Find(c.op, c.name)
				if !s.fits(alg) {
					continue
				}
				w, err := s.check(alg, 1)
				if err != nil {
					t.Fatal(err)
				}
				l := placed{p, nodes.count(), len(nodes.ranks(nodes.node[s.root])), s.bytes}
				for _, count := range []struct {
					what string
					got  int
					want func(placed) int
				}{{"messages", w.messages, c.messages}, {"messages between nodes", w.nodeMessages, c.betweenNodes}, {"bytes between nodes", w.nodeBytes, c.byBytes}} {
					if count.want != nil && count.got != count.want(l) {
						t.Errorf("%v %s, %+v: %d %s, want %d", c.op, c.name, l, count.got, count.what, count.want(l))
					}
				}
			}
		}
	}
}
