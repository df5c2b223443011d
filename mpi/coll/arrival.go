package coll

// Algorithms for ranks that arrive at different times. A rank advertises all its receives when it
// arrives. Direct algorithms send a message to each peer: in the order of ranks, where a late rank delays
// the messages to all after it, or in the order of arrival. That needs all peers in one round.
//
// Where the order of messages is part of the algorithm, as in Bruck's algorithm and recursive doubling,
// a rank can only advertise its receives of all rounds, so that peers that are ahead need not wait for
// it. Their messages need different places, and the data of a message must not depend on the last one:
// in Bruck's alltoall and in reductions by recursive doubling it does.

// direct returns a phase that sends the block for each rank, and receives one from each into Out. own
// copies this rank's own block.
func direct(own func(*Call, *Round), blockFor func(c *Call, to int) Slice, inOrder bool) phase {
	return once(func(c *Call, r *Round) {
		r.advertise(c, func(peer int) Slice { return c.block(Out, peer) }, nil)
		for k := 1; k < c.Size; k++ {
			r.sendAdvertised(c.after(k), blockFor(c, c.after(k)))
			if inOrder {
				r.Steps = append(r.Steps, Step{Kind: WaitStarted})
			}
		}
		own(c, r)
	})
}

const inOrder, byArrival = true, false

var (
	directBlocks  = direct(placeOwn, func(c *Call, _ int) Slice { return c.ownBlock() }, inOrder)
	arrivalBlocks = direct(placeOwn, func(c *Call, _ int) Slice { return c.ownBlock() }, byArrival)
	directAll     = direct(keepOwn, func(c *Call, to int) Slice { return c.block(In, to) }, inOrder)
	arrivalAll    = direct(keepOwn, func(c *Call, to int) Slice { return c.block(In, to) }, byArrival)
)

// inAdvance returns a phase that advertises the receives of all rounds first. The rounds of p are exchanges.
// A message has data of the one before it.
func inAdvance(p phase) phase {
	return once(func(c *Call, r *Round) {
		var exchanges Round
		for i := range p.rounds(c) {
			p.round(c, i, &exchanges)
		}
		for i := 0; i < len(exchanges.Steps); i += 2 {
			s := exchanges.Steps[i]
			s.Kind = RecvAdvertised
			r.Steps = append(r.Steps, s)
		}
		for i := 0; i < len(exchanges.Steps); i += 2 {
			r.sendAdvertised(exchanges.Steps[i+1].Peer, exchanges.Steps[i+1].Src)
			r.waitFor(exchanges.Steps[i].Peer)
		}
	})
}

var (
	arrivalBruck    = inAdvance(bruckBlocks(binary))
	arrivalDoubling = inAdvance(doublingBlocks)
)

// arrivalReduceParts combines, at each rank, its part of the vectors of all ranks, in the order in which
// they arrive.
func arrivalReduceParts(c *Call, r *Round) {
	own := c.part(c.result().Buf, c.Rank)
	if c.result() != c.input() {
		r.copy(own, c.ofInput(own))
	}
	received := func(peer int) Slice { return Slice{Scratch, (c.before(peer) - 1) * own.Len, own.Len} }
	r.advertise(c, received, func(peer int) { r.combine(Combine, own, received(peer)) })
	for k := 1; k < c.Size; k++ {
		r.sendAdvertised(c.after(k), c.part(c.input().Buf, c.after(k)))
	}
}

// arrivalScratch is the size of Scratch for this rank's part of the vectors of all other ranks.
func arrivalScratch(c *Call) int { return (c.Size - 1) * c.part(Out, c.Rank).Len }

// arrivalParts sends the part of the result that this rank has to all others.
func arrivalParts(c *Call, r *Round) {
	buffer := c.result().Buf
	r.advertise(c, func(peer int) Slice { return c.part(buffer, peer) }, nil)
	for k := 1; k < c.Size; k++ {
		r.sendAdvertised(c.after(k), c.part(buffer, c.Rank))
	}
}
