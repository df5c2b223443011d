package coll

var alltoalls = []*Algorithm{
	{Op: Alltoall, Name: "pairwise", phases: []phase{once(keepOwn), pairwiseBlocks}},
	{Op: Alltoall, Name: "exchange", Needs: PowerOfTwo, phases: []phase{once(keepOwn), exchangeBlocks}},
	{Op: Alltoall, Name: "spread", phases: []phase{spreadAll}},
	{Op: Alltoall, Name: "direct", phases: []phase{directAll}},
	{Op: Alltoall, Name: "arrival-direct", phases: []phase{arrivalAll}},
	{Op: Alltoall, Name: "shared-direct", Needs: EqualBlocks | KnownNodes | ConsecutiveRanks, phases: alltoallNodes.phases(inOrder), shared: alltoallShared},
	{Op: Alltoall, Name: "arrival-shared-direct", Needs: EqualBlocks | KnownNodes | ConsecutiveRanks, phases: alltoallNodes.phases(byArrival), shared: alltoallShared},
	{Op: Alltoall, Name: "bruck", Needs: EqualBlocks, phases: []phase{bruckAll}, scratch: bruckScratch},
}

// keepOwn copies the block that this rank has for itself.
func keepOwn(c *Call, r *Round) { r.copy(c.block(Out, c.Rank), c.block(In, c.Rank)) }

// pairwiseBlocks sends, in round i, to the rank i+1 after this one.
var pairwiseBlocks = phase{
	ringRounds,
	func(c *Call, i int, r *Round) {
		to, from := c.after(i+1), c.before(i+1)
		r.exchange(from, c.block(Out, from), to, c.block(In, to))
	},
}

// exchangeBlocks exchanges, in each round, the blocks of two ranks.
var exchangeBlocks = phase{
	ringRounds,
	func(c *Call, i int, r *Round) {
		peer := c.Rank ^ (i + 1)
		r.exchange(peer, c.block(Out, peer), peer, c.block(In, peer))
	},
}

// spreadAll sends to all other ranks at once.
var spreadAll = spread(keepOwn, func(c *Call, to int) Slice { return c.block(In, to) })

// spread returns a phase that sends the block for each rank, and receives one from each into Out, all at
// once. own copies this rank's own block in the first round.
func spread(own func(*Call, *Round), blockFor func(c *Call, to int) Slice) phase {
	return phase{
		func(c *Call) int { return max(1, batches(c.Size-1)) },
		func(c *Call, i int, r *Round) {
			first, end := batch(i, c.Size-1)
			for k := first; k < end; k++ {
				r.recv(c.before(k), c.block(Out, c.before(k)))
			}
			for k := first; k < end; k++ {
				r.send(c.after(k), blockFor(c, c.after(k)))
			}
			if i == 0 {
				own(c, r)
			}
		},
	}
}

// Bruck's algorithm: Scratch has size blocks, block i for the rank i after this one. Round i sends the
// blocks whose number has bit i to the rank 2^i after this one. Behind the blocks, Scratch has the
// message that is sent and the one that is received.

func bruckScratch(c *Call) int { return c.Size*c.Bytes + 2*maxBruckBlocks(c)*c.Bytes }

// maxBruckBlocks is the largest number of blocks in a message.
func maxBruckBlocks(c *Call) (n int) {
	for i := range logRounds(c) {
		n = max(n, bruckCount(c.Size, 1<<i))
	}
	return n
}

// bruckCount returns how many numbers below size have the bit step.
func bruckCount(size, step int) int { return size/(2*step)*step + max(0, size%(2*step)-step) }

// bruckAll rotates the blocks, then packs, exchanges and unpacks in each round, and at the end puts
// block i, which is now from the rank i before this one, to its place. An unpack is a round of its own.
var bruckAll = phase{
	func(c *Call) int { return 2*logRounds(c) + 2 },
	func(c *Call, i int, r *Round) {
		sent := Slice{Scratch, c.Size * c.Bytes, maxBruckBlocks(c) * c.Bytes}
		received := sent.from(sent.Len, sent.Len)
		last := 2*logRounds(c) + 1
		switch step := 1 << ((i - 1) / 2); {
		case i == 0:
			c.rotate(r, Scratch, In, c.Rank)
		case i == last:
			n := c.Bytes
			r.copyStrided(Slice{Out, c.Rank * n, n}, -n, c.all(Scratch), n, c.Rank+1)
			r.copyStrided(Slice{Out, (c.Size - 1) * n, n}, -n, Slice{Scratch, (c.Rank + 1) * n, n}, n, c.Size-c.Rank-1)
		case i%2 == 1:
			bruckMove(c, r, step, sent, true)
			n := bruckCount(c.Size, step) * c.Bytes
			r.exchange(c.before(step), received.from(0, n), c.after(step), sent.from(0, n))
		default:
			bruckMove(c, r, step, received, false)
		}
	},
}

// bruckMove packs the blocks whose number has the bit step to message, or unpacks them.
func bruckMove(c *Call, r *Round, step int, message Slice, pack bool) {
	n := step * c.Bytes // of consecutive blocks
	whole := c.Size / (2 * step)
	rest := max(0, c.Size%(2*step)-step) * c.Bytes
	blocks, message := Slice{Scratch, n, n}, message.from(0, n)
	last, lastMessage := Slice{Scratch, whole*2*n + n, rest}, message.from(whole*n, rest)
	if pack {
		r.copyStrided(message, n, blocks, 2*n, whole)
		r.copy(lastMessage, last)
	} else {
		r.copyStrided(blocks, 2*n, message, n, whole)
		r.copy(last, lastMessage)
	}
}
