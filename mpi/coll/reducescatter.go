package coll

var reduceScatters = []*Algorithm{
	{Op: ReduceScatter, Name: "reduce-scatter", phases: []phase{binomialReduce, scatterResult}, scratch: vectorScratch},
	{Op: ReduceScatter, Name: "pairwise", Needs: Commutative, phases: []phase{pairwiseReduce}, scratch: func(c *Call) int { return 2 * c.Bytes }},
	{Op: ReduceScatter, Name: "ring", Needs: Commutative, phases: []phase{once(startVector), ringReduceParts, once(takeResult)}, scratch: vectorScratch},
	{Op: ReduceScatter, Name: "recursive-halving", Needs: Commutative, phases: []phase{once(startVector), once(join), halvingParts, once(takeHalves)}, scratch: vectorScratch},
}

// takeResult copies this rank's block of the result to Out.
func takeResult(c *Call, r *Round) { r.copy(c.all(Out), c.part(Scratch, c.Rank)) }

// scatterResult sends each block of the result from rank 0 to its rank.
var scatterResult = phase{
	rootRounds(manyAtOnce),
	func(c *Call, i int, r *Round) {
		if c.Rank != 0 {
			r.recv(0, c.all(Out))
			return
		}
		for k, end := batch(i, c.Size-1, maxAtOnce); k < end; k++ {
			r.send(k, c.part(Scratch, k))
		}
		if i == 0 {
			takeResult(c, r)
		}
	},
}

// pairwiseReduce sends, in round i, the block of the rank i after this one to that rank, which combines
// it with the others.
var pairwiseReduce = phase{
	func(c *Call) int { return c.Size + 1 },
	func(c *Call, i int, r *Round) {
		whole := c.all(Scratch)
		received := whole.from(whole.Len, whole.Len)
		switch to, from := c.after(i), c.before(i); i {
		case 0:
			r.copy(whole, c.part(c.input().Buf, c.Rank))
		case c.Size:
			r.copy(c.all(Out), whole)
		default:
			r.exchange(from, received, to, c.part(c.input().Buf, to))
			r.combineReceived(whole, received, from < c.Rank)
		}
	},
}

// takeHalves ends recursive halving: a rank whose partner has rested gives it its block.
func takeHalves(c *Call, r *Round) {
	f := c.fold()
	switch {
	case f.number(c.Rank) < 0:
		r.recv(c.Rank+1, c.all(Out))
		return
	case c.Rank < 2*f.extra:
		r.send(c.Rank-1, c.part(Scratch, c.Rank-1))
	}
	takeResult(c, r)
}
