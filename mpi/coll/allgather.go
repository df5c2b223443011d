package coll

var allgathers = []*Algorithm{
	{Op: Allgather, Name: "ring", phases: []phase{once(placeOwn), ringBlocks}},
	{Op: Allgather, Name: "bruck", Needs: EqualBlocks, phases: []phase{once(startBruck), bruckBlocks, once(endBruck)}, scratch: allBlocks},
	{Op: Allgather, Name: "recursive-doubling", Needs: PowerOfTwo | EqualBlocks, phases: []phase{once(placeOwn), doublingBlocks}},
	{Op: Allgather, Name: "neighbour-exchange", Needs: EvenSize | EqualBlocks, phases: []phase{once(placeOwn), neighbourBlocks}},
	{Op: Allgather, Name: "spread", phases: []phase{spreadBlocks}},
	{Op: Allgather, Name: "direct", phases: []phase{directBlocks}},
	{Op: Allgather, Name: "arrival-direct", phases: []phase{arrivalBlocks}},
	{Op: Allgather, Name: "shared-direct", Needs: EqualBlocks | KnownNodes, phases: allgatherNodes.phases(inOrder), shared: allgatherShared},
	{Op: Allgather, Name: "arrival-shared-direct", Needs: EqualBlocks | KnownNodes, phases: allgatherNodes.phases(byArrival), shared: allgatherShared},
	{Op: Allgather, Name: "arrival-bruck", Needs: EqualBlocks, phases: []phase{once(startBruck), arrivalBruck, once(endBruck)}, scratch: allBlocks},
	{Op: Allgather, Name: "arrival-recursive-doubling", Needs: PowerOfTwo | EqualBlocks, phases: []phase{once(placeOwn), arrivalDoubling}},
	{Op: Allgather, Name: "gather-bcast", Needs: EqualBlocks, phases: []phase{binomialGather.withRoot0(), bcastBlocks.withRoot0()}, scratch: treeScratch},
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
// from the rank n after it. Scratch has the blocks of this rank, the next one, …; at the end they are
// rotated to the order of ranks.

func startBruck(c *Call, r *Round) { r.copy(c.all(Scratch), c.ownBlock()) }

var bruckBlocks = phase{
	logRounds,
	func(c *Call, i int, r *Round) {
		has := 1 << i
		n := min(has, c.Size-has) * c.Bytes
		r.exchange(c.after(has), Slice{Scratch, has * c.Bytes, n}, c.before(has), Slice{Scratch, 0, n})
	},
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

// spreadBlocks sends this rank's block to every other rank.
var spreadBlocks = spread(placeOwn, func(c *Call, _ int) Slice { return c.ownBlock() })

// bcastBlocks sends all blocks of Out down a binomial tree.
var bcastBlocks = binomialBcast.ofAllBlocks()

// ofAllBlocks returns a phase that moves all blocks of a buffer as one.
func (p phase) ofAllBlocks() phase {
	return phase{
		p.rounds,
		func(c *Call, i int, r *Round) {
			whole := *c
			whole.Bytes *= c.Size
			p.round(&whole, i, r)
		},
	}
}
