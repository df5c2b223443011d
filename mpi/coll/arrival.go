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
// copies this rank's own block, and afterSend adds the steps that follow send k.
func direct(own func(*Call, *Round), blockFor func(c *Call, to int) Slice, afterSend func(c *Call, r *Round, k int)) phase {
	return once(func(c *Call, r *Round) {
		r.advertise(c, func(peer int) Slice { return c.block(Out, peer) }, nil)
		for k := 1; k < c.Size; k++ {
			r.sendAdvertised(c.after(k), blockFor(c, c.after(k)))
			afterSend(c, r, k)
		}
		own(c, r)
	})
}

// waitStarted keeps the order of sends, and anyOrder does not.
func waitStarted(_ *Call, r *Round, _ int) { r.Steps = append(r.Steps, Step{Kind: WaitStarted}) }
func anyOrder(*Call, *Round, int)          {}

const inOrder, byArrival = true, false

var (
	directBlocks  = direct(placeOwn, sameBlock, waitStarted)
	arrivalBlocks = direct(placeOwn, sameBlock, anyOrder)
	directAll     = direct(keepOwn, blockFor, waitStarted)
	arrivalAll    = direct(keepOwn, blockFor, anyOrder)
)

// inAdvance returns a phase that advertises the receives of all rounds first. The rounds of p are exchanges
// with different ranks. A message has data of the round before it.
func inAdvance(p phase) phase {
	return once(func(c *Call, r *Round) {
		rounds := make([]Round, p.rounds(c))
		for i := range rounds {
			p.round(c, i, &rounds[i])
			rounds[i].each(Recv, func(s *Step) { r.recvAdvertised(s.Peer, s.Dst) })
		}
		for i := range rounds {
			rounds[i].each(Send, func(s *Step) { r.sendAdvertised(s.Peer, s.Src) })
			rounds[i].each(Recv, func(s *Step) { r.waitFor(s.Peer) })
		}
	})
}

// each calls do for each step of a kind.
func (r *Round) each(k Kind, do func(s *Step)) {
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Kind == k {
			do(s)
		}
	}
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
