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

// startVector copies the input to the memory in which the rank combines.
func startVector(c *Call, r *Round) {
	if c.result() != c.input() {
		r.copy(c.result(), c.input())
	}
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
		switch isLeaf := n == 1 && relative != 0; {
		case isLeaf:
			result = c.input()
		case i == 0:
			startVector(c, r)
		}
		switch distance := 1 << i; {
		case i == logRounds(c):
			if relative != 0 {
				r.send(tree.absolute(parent(relative, 2)), result)
			}
		case distance < n:
			received := c.received(result.Len)
			r.recv(tree.absolute(relative+distance), received)
			r.combineReceived(result, received, false)
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
