package coll

import "slices"

// Nodes says which ranks are on the same node. Nodes are numbered by their first ranks.
type Nodes struct {
	order []int // the ranks of node 0, in ascending order, then those of node 1, …
	place []int // index of each rank in order
	node  []int // node of each rank
	start []int // place of the first rank of each node; at the end the number of ranks
}

// NewNodes returns the nodes of ranks, given any number of the node of each rank.
func NewNodes(size int, nodeOf func(rank int) int) *Nodes {
	n := &Nodes{place: make([]int, size), node: make([]int, size)}
	numbers := map[int]int{}
	var counts []int
	for rank := range size {
		k, known := numbers[nodeOf(rank)]
		if !known {
			k = len(counts)
			numbers[nodeOf(rank)] = k
			counts = append(counts, 0)
		}
		n.node[rank] = k
		n.order = append(n.order, rank)
		counts[k]++
	}
	slices.SortStableFunc(n.order, func(a, b int) int { return n.node[a] - n.node[b] })
	for at, rank := range n.order {
		n.place[rank] = at
	}
	n.start = []int{0}
	for k, count := range counts {
		n.start = append(n.start, n.start[k]+count)
	}
	return n
}

// count returns the number of nodes.
func (n *Nodes) count() int { return len(n.start) - 1 }

// ranks returns the ranks of a node.
func (n *Nodes) ranks(node int) []int { return n.order[n.start[node]:n.start[node+1]] }

// fewest returns the smallest number of ranks on a node, and most the largest.
func (n *Nodes) fewest() int {
	fewest := len(n.order)
	for k := range n.count() {
		fewest = min(fewest, len(n.ranks(k)))
	}
	return fewest
}

func (n *Nodes) most() (most int) {
	for k := range n.count() {
		most = max(most, len(n.ranks(k)))
	}
	return most
}

// areConsecutive reports whether the ranks of each node follow each other.
func (n *Nodes) areConsecutive() bool { return slices.IsSorted(n.order) }

// myNode returns the node of this rank.
func (c *Call) myNode() int { return c.Nodes.node[c.Rank] }

// local returns the ranks of this node, and the index of this rank among them.
func (c *Call) local() (ranks []int, me int) {
	return c.Nodes.ranks(c.myNode()), c.Nodes.place[c.Rank] - c.Nodes.start[c.myNode()]
}

// leader returns the rank of a node that exchanges messages with other nodes: the root, or the first.
func (c *Call) leader(node int) int {
	if c.Nodes.node[c.Root] == node {
		return c.Root
	}
	return c.Nodes.ranks(node)[0]
}

// isLeader reports whether this rank is the leader of its node.
func (c *Call) isLeader() bool { return c.leader(c.myNode()) == c.Rank }

// withinNode returns a phase of the ranks of each node, with the leader as the root.
func (p phase) withinNode() phase {
	call := func(c *Call) *Call {
		d := c.subcall()
		ranks, me := c.local()
		d.Rank, d.Size, d.Root = me, len(ranks), slices.Index(ranks, c.leader(c.myNode()))
		return d
	}
	return phase{
		func(c *Call) int { return p.rounds(call(c)) },
		func(c *Call, i int, r *Round) {
			ranks, _ := c.local()
			c.subround(r, func() { p.round(call(c), i, r) }, func(peer int) int { return ranks[peer] })
		},
	}
}

// amongLeaders returns a phase of the leaders, numbered by node. In a reduction their input is in the
// memory of the result.
func (p phase) amongLeaders() phase {
	call := func(c *Call) *Call {
		d := c.subcall()
		d.Rank, d.Size, d.Root, d.InPlace = c.myNode(), c.Nodes.count(), c.Nodes.node[c.Root], true
		return d
	}
	return phase{
		func(c *Call) int {
			if !c.isLeader() {
				return 0
			}
			return p.rounds(call(c))
		},
		func(c *Call, i int, r *Round) {
			c.subround(r, func() { p.round(call(c), i, r) }, c.leader)
		},
	}
}

// subcall returns the call as some of the ranks execute it. A reduction has its result in Out at all of
// them.
func (c *Call) subcall() *Call {
	d := *c
	d.Nodes = nil
	if c.Op == Reduce {
		d.Op = Allreduce
	}
	return &d
}

// subround calls add, which appends steps of a subcall, and changes the steps to those of the call: peers
// to their ranks, and, in a Reduce at ranks that have no Out, Out to memory of Scratch before the other.
func (c *Call) subround(r *Round, add func(), rank func(peer int) int) {
	first := len(r.Steps)
	add()
	for i := range r.Steps[first:] {
		s := &r.Steps[first+i]
		if s.hasPeer() {
			s.Peer = rank(s.Peer)
		}
		if c.Op == Reduce && c.Rank != c.Root {
			s.Src, s.Dst = c.withoutOut(s.Src), c.withoutOut(s.Dst)
		}
	}
}

func (c *Call) withoutOut(s Slice) Slice {
	switch s.Buf {
	case Out:
		s.Buf = Scratch
	case Scratch:
		s.Off += c.Bytes
	}
	return s
}

// places returns the number of ranks on count nodes from one on, in a ring of nodes.
func (n *Nodes) places(first, count int) int {
	end := first + count
	if end <= n.count() {
		return n.start[end] - n.start[first]
	}
	return len(n.order) - n.start[first] + n.start[end-n.count()]
}
