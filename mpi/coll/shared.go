package coll

// Through shared memory, data is copied twice, and messages are empty: they say that data is there, and in
// operations after which a rank does not know that the others have read it, that the memory is free again.

// slot returns the first Bytes bytes of the part of a rank, which only it writes: in the next operation
// another rank may already write, while some ranks still read.
func (c *Call) slot(rank int) Slice { return Slice{Shared, rank * (c.Shared / c.Size), c.Bytes} }

// slotBytes is the size of shared memory for a block of each rank of a node.
func slotBytes(c *Call) int { return c.Nodes.most() * c.Bytes }

// others calls do for each rank but the root.
func (c *Call) others(do func(peer int)) {
	for k := 1; k < c.Size; k++ {
		do(c.absolute(k))
	}
}

// sharedBcast copies Out of the root to shared memory, and from there to Out of all other ranks.
var sharedBcast = phase{
	func(c *Call) int { return min(1, c.Size-1) },
	func(c *Call, _ int, r *Round) {
		shared := c.slot(c.Root)
		if c.Rank != c.Root {
			r.recv(c.Root, nothing)
			r.wait()
			r.copy(c.all(Out), shared)
			r.send(c.Root, nothing)
			return
		}
		r.copy(shared, c.all(Out))
		c.others(func(peer int) { r.send(peer, nothing) })
		c.others(func(peer int) { r.recv(peer, nothing) })
	},
}

// sharedGather copies the blocks of all ranks to shared memory, at the same time. The leader of each node
// sends them to the root, which copies those of its own node from there.
var sharedGather = phase{
	func(c *Call) int {
		if c.Rank == c.Root {
			return max(1, batches(c.Nodes.count()-1, maxAtOnce))
		}
		return 1
	},
	func(c *Call, i int, r *Round) {
		if !c.isLeader() {
			leader := c.leader(c.myNode())
			r.copy(c.deposit(), c.ownBlock())
			r.exchange(leader, nothing, leader, nothing)
			return
		}
		ranks, _ := c.local()
		switch {
		case i > 0:
			gatherNodes(c, i, r)
			return
		case c.Rank != c.Root:
			c.otherLocals(func(peer int) { r.recv(peer, nothing) })
			r.copy(c.deposit(), c.ownBlock())
			r.wait()
			r.send(c.Root, Slice{Shared, 0, len(ranks) * c.Bytes})
			r.wait()
			c.otherLocals(func(peer int) { r.send(peer, nothing) })
		default:
			c.otherLocals(func(peer int) { r.recv(peer, nothing) })
			placeOwn(c, r)
			r.wait()
			gatherNodes(c, i, r)
		}
	},
}

// deposit returns the memory for the block of this rank in the shared memory of its node, in which the
// blocks of the node's ranks follow each other.
func (c *Call) deposit() Slice {
	_, me := c.local()
	return Slice{Shared, me * c.Bytes, c.Bytes}
}

// gatherNodes receives the blocks of a batch of nodes at the root. In round 0 it also copies those of the
// other ranks of its own node, whose
// memory is then free.
func gatherNodes(c *Call, i int, r *Round) {
	n, mine := c.Nodes, c.myNode()
	first, end := batch(i, n.count()-1, maxAtOnce)
	node := func(k int) int { return (mine + k) % n.count() }
	for k := first; k < end; k++ {
		r.recv(c.leader(node(k)), c.landing(node(k)))
	}
	if place := n.place[c.Rank]; i == 0 {
		c.toRanks(r, Slice{Buf: Shared}, n.start[mine], place)
		c.toRanks(r, c.deposit().from(c.Bytes, 0), place+1, n.start[mine+1])
		c.otherLocals(func(peer int) { r.send(peer, nothing) })
	}
	r.wait()
	for k := first; k < end; k++ {
		if from := c.landing(node(k)); from.Buf != Out {
			c.toRanks(r, from, n.start[node(k)], n.start[node(k)+1])
		}
	}
}

// landing returns the memory where the root receives the blocks of a node: Out if they follow each other
// there, else Scratch.
func (c *Call) landing(node int) Slice {
	ranks := c.Nodes.ranks(node)
	s := Slice{Out, ranks[0] * c.Bytes, len(ranks) * c.Bytes}
	if ranks[len(ranks)-1]-ranks[0] != len(ranks)-1 {
		s.Buf, s.Off = Scratch, c.Nodes.start[node]*c.Bytes
	}
	return s
}

// landingScratch is the size of Scratch for blocks that do not follow each other at the root.
func landingScratch(c *Call) int {
	if c.Rank != c.Root || c.Nodes.areConsecutive() {
		return 0
	}
	return allBlocks(c)
}

// otherLocals calls do for each other rank of this node.
func (c *Call) otherLocals(do func(peer int)) {
	ranks, _ := c.local()
	for _, peer := range ranks {
		if peer != c.Rank {
			do(peer)
		}
	}
}

// toRanks copies the blocks of the ranks at the places from first to end, which follow each other from the
// start of src on, to Out.
func (c *Call) toRanks(r *Round, src Slice, first, end int) {
	c.toRanksFrom(r, src, c.Bytes, first, end)
}

// toRanksFrom is toRanks of blocks at a distance.
func (c *Call) toRanksFrom(r *Round, src Slice, distance, first, end int) {
	c.runs(first, end, func(at, rank, stride, n int) {
		if stride == 1 && distance == c.Bytes {
			r.copy(Slice{Out, rank * c.Bytes, n * c.Bytes}, src.from(at*distance, n*c.Bytes))
		} else {
			r.copyStrided(c.block(Out, rank), stride*c.Bytes, src.from(at*distance, c.Bytes), distance, n)
		}
	})
}

// fromRanks copies the blocks of In for the ranks at the places from first to end to dst, where they follow
// each other.
func (c *Call) fromRanks(r *Round, dst Slice, first, end int) {
	c.runs(first, end, func(at, rank, stride, n int) {
		if stride == 1 {
			r.copy(dst.from(at*c.Bytes, n*c.Bytes), Slice{In, rank * c.Bytes, n * c.Bytes})
		} else {
			r.copyStrided(dst.from(at*c.Bytes, c.Bytes), c.Bytes, c.block(In, rank), stride*c.Bytes, n)
		}
	})
}

// runs calls do for the runs of ranks at the same distances among those at the places from first to end:
// with the place after first, the rank and the number of ranks.
func (c *Call) runs(first, end int, do func(at, rank, stride, n int)) {
	for at, n := 0, 0; first+at < end; at += n {
		ranks, stride := c.Nodes.order[first+at:end], 1
		if len(ranks) > 1 {
			stride = ranks[1] - ranks[0]
		}
		for n = 1; n < len(ranks) && ranks[n]-ranks[n-1] == stride; n++ {
		}
		do(at, ranks[0], stride, n)
	}
}
