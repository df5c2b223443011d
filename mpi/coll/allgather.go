package coll

var allgathers = []*Algorithm{
	{Op: Allgather, Name: "ring", phases: []phase{once(placeOwn), ringBlocks}},
	{Op: Allgather, Name: "bruck", Needs: EqualBlocks, phases: []phase{once(startBruck), bruckBlocks(binary), once(endBruck)}, scratch: allBlocks},
	{Op: Allgather, Name: "kport-direct", Unbuffered: true, phases: []phase{directPorts(placeOwn, sameBlock)}},
	{Op: Allgather, Name: "kport-bruck", Unbuffered: true, Needs: EqualBlocks, phases: []phase{once(startBruck), inAdvance(bruckBlocks(portRadix)), once(endBruck)}, scratch: allBlocks},
	{Op: Allgather, Name: "kport-exchange", Unbuffered: true, Needs: EqualBlocks, phases: []phase{once(placeOwn), exchangeGroups.advertised()}},
	{Op: Allgather, Name: "recursive-doubling", Needs: PowerOfTwo | EqualBlocks, phases: []phase{once(placeOwn), doublingBlocks}},
	{Op: Allgather, Name: "neighbour-exchange", Needs: EvenSize | EqualBlocks, phases: []phase{once(placeOwn), neighbourBlocks}},
	{Op: Allgather, Name: "spread", phases: []phase{spread(placeOwn, sameBlock)}},
	{Op: Allgather, Name: "direct", phases: []phase{directBlocks}},
	{Op: Allgather, Name: "arrival-direct", phases: []phase{arrivalBlocks}},
	{Op: Allgather, Name: "shared-direct", Needs: EqualBlocks | KnownNodes, phases: allgatherNodes.phases(inOrder), shared: allgatherShared},
	{Op: Allgather, Name: "arrival-shared-direct", Needs: EqualBlocks | KnownNodes, phases: allgatherNodes.phases(byArrival), shared: allgatherShared},
	{Op: Allgather, Name: "arrival-bruck", Needs: EqualBlocks, phases: []phase{once(startBruck), arrivalBruck, once(endBruck)}, scratch: allBlocks},
	{Op: Allgather, Name: "arrival-recursive-doubling", Needs: PowerOfTwo | EqualBlocks, phases: []phase{once(placeOwn), arrivalDoubling}},
	{Op: Allgather, Name: "gather-bcast", Needs: EqualBlocks, phases: []phase{treeGather(binary).withRoot0(), bcastBlocks.withRoot0()}, scratch: treeScratch(binary)},
	{Op: Allgather, Name: "gather-multicast", Needs: EqualBlocks | Multicasts, phases: []phase{treeGather(binary).withRoot0(), multicastBlocks}, scratch: treeScratch(binary)},
}

// placeOwn copies this rank's block to its place in Out.
func placeOwn(c *Call, r *Round) {
	if !c.InPlace {
		r.copy(c.block(Out, c.Rank), c.all(In))
	}
}

// ownBlock returns the memory with this rank's block.
func (c *Call) ownBlock() Slice {
	if c.InPlace {
		return c.block(Out, c.Rank)
	}
	return c.all(In)
}

// ringBlocks passes each block of Out once around the ring of ranks.
var ringBlocks = phase{
	ringRounds,
	func(c *Call, i int, r *Round) {
		r.exchange(c.before(1), c.block(Out, c.before(i+1)), c.after(1), c.block(Out, c.before(i)))
	},
}

// Bruck's algorithm: a rank that has n blocks sends them to the rank n before it, and receives as many
// from the rank n after it; with a radix of more than 2 also to and from the ranks at distances of 2n, …. Scratch has the blocks of this rank, the next one, …; at the end they are
// rotated to the order of ranks.

func startBruck(c *Call, r *Round) { r.copy(c.all(Scratch), c.ownBlock()) }

func bruckBlocks(q radix) phase {
	return phase{
		q.rounds,
		func(c *Call, i int, r *Round) {
			has := power(q(c), i)
			for distance := has; distance < min(has*q(c), c.Size); distance += has {
				n := min(has, c.Size-distance) * c.Bytes
				r.exchange(c.after(distance), Slice{Scratch, distance * c.Bytes, n}, c.before(distance), Slice{Scratch, 0, n})
			}
		},
	}
}

func endBruck(c *Call, r *Round) { c.rotate(r, Out, Scratch, (c.Size-c.Rank)%c.Size) }

// doublingBlocks doubles the blocks of Out that a rank has.
var doublingBlocks = phase{
	logRounds,
	func(c *Call, i int, r *Round) {
		n := 1 << i
		peer := c.Rank ^ n
		r.exchange(peer, c.blocks(peer&^(n-1), n), peer, c.blocks(c.Rank&^(n-1), n))
	},
}

// blocks returns n consecutive blocks of Out, all of the same size.
func (c *Call) blocks(first, n int) Slice { return Slice{Out, first * c.Bytes, n * c.Bytes} }

// neighbourBlocks exchanges blocks with both neighbours in turn: first the rank's own block, then the
// two blocks that it received last.
var neighbourBlocks = phase{
	func(c *Call) int { return c.Size / 2 },
	func(c *Call, i int, r *Round) {
		peer := c.before(1)
		if (c.Rank%2 == 0) == (i%2 == 0) {
			peer = c.after(1)
		}
		if i == 0 {
			r.exchange(peer, c.block(Out, peer), peer, c.block(Out, c.Rank))
			return
		}
		r.exchange(peer, c.neighbourPair(c.Rank, i), peer, c.neighbourPair(c.Rank, i-1))
	},
}

// neighbourPair returns the two blocks that a rank receives in round i of a neighbour exchange; in
// round 0 its own block and that of its neighbour.
func (c *Call) neighbourPair(rank, i int) Slice {
	distance := (i + 1) / 2 * 2
	if (rank%2 == 0) == (i%2 == 1) {
		distance = -distance
	}
	return c.blocks((rank/2*2+distance+c.Size)%c.Size, 2)
}

// bcastBlocks sends all blocks of Out down a binomial tree.
var bcastBlocks = binomialBcast.ofAllBlocks()

// multicastBlocks multicasts all blocks of Out from rank 0. After a gather all ranks have called the operation.
var multicastBlocks = multicastOut.ofAllBlocks().withRoot0()

// ofAllBlocks returns a phase that moves all blocks of a buffer as one.
func (p phase) ofAllBlocks() phase {
	whole := func(c *Call) *Call { d := *c; d.Bytes *= c.Size; return &d }
	return phase{
		func(c *Call) int { return p.rounds(whole(c)) },
		func(c *Call, i int, r *Round) { p.round(whole(c), i, r) },
	}
}
