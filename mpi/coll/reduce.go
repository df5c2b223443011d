package coll

var reduces = []*Algorithm{
	{Op: Reduce, Name: "binomial", phases: []phase{binomialReduce, once(moveToRoot)}, scratch: vectorScratch},
	{Op: Reduce, Name: "linear", phases: []phase{linearReduce}, scratch: func(c *Call) int { return 2 * c.Bytes }},
	{Op: Reduce, Name: "rabenseifner", Needs: Commutative, phases: []phase{once(startVector), once(join), halvingParts, gatherHalves}, scratch: vectorScratch},
	{Op: Reduce, Name: "smp", Needs: Commutative | KnownNodes, phases: []phase{binomialReduce.withinNode(), binomialReduce.amongLeaders()}, scratch: vectorScratch},
}

// input returns the memory with the input of this rank.
func (c *Call) input() Slice {
	if c.InPlace {
		return Slice{Out, 0, c.vectorBytes()}
	}
	return Slice{In, 0, c.vectorBytes()}
}

// result returns the memory in which this rank combines: Out if it receives the whole result.
func (c *Call) result() Slice {
	if c.Op == ReduceScatter || c.Op == Reduce && c.Rank != c.Root {
		return Slice{Scratch, 0, c.vectorBytes()}
	}
	return Slice{Out, 0, c.vectorBytes()}
}

// received returns n bytes of the memory for data of other ranks. It is behind the result.
func (c *Call) received(n int) Slice {
	if c.result().Buf == Scratch {
		return Slice{Scratch, c.vectorBytes(), n}
	}
	return Slice{Scratch, 0, n}
}

// vectorScratch is the size of Scratch for received data, and for the result if it is there.
func vectorScratch(c *Call) int { n := c.vectorBytes(); return c.received(n).Off + n }

// copyInput copies the input to the memory in which the rank combines.
func copyInput(c *Call, r *Round) {
	if c.result() != c.input() {
		r.copy(c.result(), c.input())
	}
}

// startVector is copyInput, unless the first combination puts the result there, or this rank rests.
func startVector(c *Call, r *Round) {
	if !c.combinesInput() && c.fold().number(c.Rank) >= 0 {
		copyInput(c, r)
	}
}

// combinesInput reports whether the data that a rank receives first is received in the memory of the
// result, and combined there with the input: the input is not copied. The received data is then the second
// operand, which only a commutative operation allows for that of any rank.
func (c *Call) combinesInput() bool { return c.Size > 1 && !c.Ordered && c.result() != c.input() }

// operands returns the memory in which data of another rank for a part of the result is received, and that of
// this rank's own data for it: with isInput, its input.
func (c *Call) operands(part Slice, isInput bool) (received, own Slice) {
	if isInput {
		return part, c.ofInput(part)
	}
	return c.received(part.Len), part
}

// ofInput returns the input for a part of the result.
func (c *Call) ofInput(part Slice) Slice { return Slice{c.input().Buf, part.Off, part.Len} }

// combineOperands combines the operands for a part of the result when the data has been received.
func (r *Round) combineOperands(part, received, own Slice, peerIsLower bool) {
	if own == part {
		r.combineReceived(part, received, peerIsLower)
		return
	}
	r.wait()
	r.combine(CombineFirst, part, own)
}

// treeRoot returns the root of the tree of a reduction. The subtrees of ranks are in order only if the
// root is 0.
func (c *Call) treeRoot() int {
	if c.Ordered {
		return 0
	}
	return c.Root
}

// binomialReduce combines the inputs up a binomial tree. The data of a child is that of higher ranks.
// It has one round for each level, and one to send to the parent.
var binomialReduce = phase{
	func(c *Call) int { return logRounds(c) + 1 },
	func(c *Call, i int, r *Round) {
		tree := *c
		tree.Root = c.treeRoot()
		relative, n := tree.relative(), treeBlocks(&tree, 2)
		result := c.result()
		switch distance, isLast := 1<<i, i == logRounds(c); {
		case isLast && n == 1 && relative == 0: // the only rank
			copyInput(c, r)
		case isLast && n == 1:
			r.send(tree.absolute(parent(relative, 2)), c.input())
		case isLast && relative != 0:
			r.send(tree.absolute(parent(relative, 2)), result)
		case distance < n:
			received, own := c.operands(result, i == 0 && result != c.input())
			r.recv(tree.absolute(relative+distance), received)
			r.combineOperands(result, received, own, false)
		}
	},
}

// moveToRoot sends the result from rank 0 to the root, if rank 0 was the root of the tree.
func moveToRoot(c *Call, r *Round) {
	switch {
	case c.treeRoot() == c.Root:
	case c.Rank == 0:
		r.send(c.Root, c.result())
	case c.Rank == c.Root:
		r.recv(0, c.all(Out))
	}
}

// linearReduce combines the inputs at the root in the order of ranks.
var linearReduce = phase{
	func(c *Call) int {
		if c.Rank != c.Root {
			return 1
		}
		return c.Size + 1
	},
	func(c *Call, i int, r *Round) {
		whole := c.all(Scratch) // of the ranks so far
		next := whole.from(c.Bytes, c.Bytes)
		if i == 0 {
			next = whole
		}
		switch {
		case c.Rank != c.Root:
			r.send(c.Root, c.all(In))
			return
		case i == c.Size:
			r.copy(c.all(Out), whole)
			return
		case i == c.Root:
			r.copy(next, c.input())
		default:
			r.recv(i, next)
		}
		if i > 0 {
			r.combineReceived(whole, next, false)
		}
	},
}
