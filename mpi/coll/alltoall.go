package coll

var alltoalls = []*Algorithm{
	{Op: Alltoall, Name: "spread", phases: []phase{spread(keepOwn, blockFor)}},
	{Op: Alltoall, Name: "pairwise", phases: []phase{once(keepOwn), pairwiseBlocks}},
	{Op: Alltoall, Name: "exchange", Needs: PowerOfTwo, phases: []phase{once(keepOwn), exchangeBlocks}},
	{Op: Alltoall, Name: "kport-direct", Unbuffered: true, phases: []phase{directPorts(keepOwn, blockFor)}},
	{Op: Alltoall, Name: "direct", phases: []phase{directAll}},
	{Op: Alltoall, Name: "arrival-direct", phases: []phase{arrivalAll}},
	{Op: Alltoall, Name: "shared-direct", Needs: EqualBlocks | KnownNodes, phases: alltoallNodes.phases(inOrder), shared: alltoallShared},
	{Op: Alltoall, Name: "arrival-shared-direct", Needs: EqualBlocks | KnownNodes, phases: alltoallNodes.phases(byArrival), shared: alltoallShared},
	{Op: Alltoall, Name: "bruck", Needs: EqualBlocks, phases: bruckAll(binary), scratch: bruckScratch(binary)},
	{Op: Alltoall, Name: "kport-bruck", Unbuffered: true, Needs: EqualBlocks, phases: bruckAll(portRadix), scratch: bruckScratch(portRadix)},
	{Op: Alltoall, Name: "kport-exchange", Unbuffered: true, Needs: EqualBlocks | PowerOfRadix, phases: []phase{once(keepAll), exchangeDigits}, scratch: exchangeScratch},
}

// keepOwn copies the block that this rank has for itself, unless it is in its place.
func keepOwn(c *Call, r *Round) {
	if to, from := c.block(Out, c.Rank), c.block(In, c.Rank); to != from {
		r.copy(to, from)
	}
}

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

// blockFor returns the block for a rank, and sameBlock that of this rank, which is for all.
func blockFor(c *Call, to int) Slice { return c.block(In, to) }
func sameBlock(c *Call, _ int) Slice { return c.ownBlock() }

// spread returns a phase that sends the block for each rank, and receives one from each into Out, with many
// ranks at once. own copies this rank's own block in the first round.
func spread(own func(*Call, *Round), blockFor func(c *Call, to int) Slice) phase {
	return phase{
		func(c *Call) int { return max(1, batches(c.Size-1, maxAtOnce)) },
		func(c *Call, i int, r *Round) {
			first, end := batch(i, c.Size-1, maxAtOnce)
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

// Logarithmic algorithms move blocks by the digits of their numbers: in round i of Bruck's algorithm the
// blocks whose digit i is d go to the rank d·radix^i after this one, in one message. The messages that are
// sent, and those that are received, are in Scratch: one for each digit but 0.

// digitBlocks returns how many numbers below size have a digit with the weight.
func digitBlocks(size, radix, weight, digit int) int {
	period := radix * weight
	return size/period*weight + min(max(0, size%period-digit*weight), weight)
}

// messageBlocks is the largest number of blocks in a message.
func messageBlocks(c *Call, radix int) (n int) {
	for i := range digits(c.Size, radix) {
		n = max(n, digitBlocks(c.Size, radix, power(radix, i), 1))
	}
	return n
}

// digitMove moves blocks of a buffer from or to messages in Scratch, from offset messages on.
type digitMove struct {
	blocks        Buffer
	messages      int
	radix, weight int
}

// message returns the memory of the message for a digit: the one that is sent, or that is received.
func (m *digitMove) message(c *Call, digit int, received bool) Slice {
	slot := digit - 1
	if received {
		slot += m.radix - 1
	}
	n := messageBlocks(c, m.radix) * c.Bytes
	return Slice{Scratch, m.messages + slot*n, digitBlocks(c.Size, m.radix, m.weight, digit) * c.Bytes}
}

// copy packs the blocks with a digit to a message, or unpacks them.
func (m *digitMove) copy(c *Call, r *Round, digit int, message Slice, pack bool) {
	n, period := m.weight*c.Bytes, m.radix*m.weight // n is the size of consecutive blocks
	whole := c.Size / period
	rest := message.Len - whole*n
	first, packed := Slice{m.blocks, digit * n, n}, message.from(0, n)
	last, packedLast := first.from(whole*period*c.Bytes, rest), message.from(whole*n, rest)
	if pack {
		r.copyStrided(packed, n, first, period*c.Bytes, whole)
		r.copy(packedLast, last)
	} else {
		r.copyStrided(first, period*c.Bytes, packed, n, whole)
		r.copy(last, packedLast)
	}
}

// bruckScratch returns the size of all blocks, block i for the rank i after this one, and of messages.
func bruckScratch(q radix) func(*Call) int {
	return func(c *Call) int { return allBlocks(c) + 2*(q(c)-1)*messageBlocks(c, q(c))*c.Bytes }
}

// bruckAll returns phases that rotate the blocks, then pack, exchange and unpack for each digit, and at the
// end put block i, which is now from the rank i before this one, to its place.
func bruckAll(q radix) []phase {
	exchange := phase{
		func(c *Call) int { return 2 * q.rounds(c) },
		func(c *Call, i int, r *Round) {
			m := digitMove{Scratch, allBlocks(c), q(c), power(q(c), i/2)}
			for digit := 1; digit < m.radix && digit*m.weight < c.Size; digit++ {
				sent, received := m.message(c, digit, false), m.message(c, digit, true)
				if i%2 == 1 {
					m.copy(c, r, digit, received, false)
					continue
				}
				m.copy(c, r, digit, sent, true)
				r.exchange(c.before(digit*m.weight), received, c.after(digit*m.weight), sent)
			}
		},
	}
	return []phase{once(rotateOut), exchange, once(reverse)}
}

// rotateOut copies all blocks to Scratch, from this rank's own on.
func rotateOut(c *Call, r *Round) { c.rotate(r, Scratch, In, c.Rank) }

// reverse copies block i of Scratch to the place of the rank i before this one.
func reverse(c *Call, r *Round) {
	n := c.Bytes
	r.copyStrided(Slice{Out, c.Rank * n, n}, -n, c.all(Scratch), n, c.Rank+1)
	r.copyStrided(Slice{Out, (c.Size - 1) * n, n}, -n, Slice{Scratch, (c.Rank + 1) * n, n}, n, c.Size-c.Rank-1)
}
