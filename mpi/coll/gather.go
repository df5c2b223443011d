package coll

var scatters = []*Algorithm{
	{Op: Scatter, Name: "linear", phases: []phase{linearScatter}},
	{Op: Scatter, Name: "binomial", Needs: EqualBlocks, phases: []phase{binomialScatter}, scratch: treeScratch},
}

var gathers = []*Algorithm{
	{Op: Gather, Name: "linear", phases: []phase{linearGather}},
	{Op: Gather, Name: "binomial", Needs: EqualBlocks, phases: []phase{binomialGather}, scratch: treeScratch},
	{Op: Gather, Name: "shared", Needs: EqualBlocks | KnownNodes, phases: []phase{sharedGather}, scratch: landingScratch, shared: slotBytes},
}

// linearScatter sends each block from the root to its rank.
var linearScatter = phase{
	func(c *Call) int { return max(1, linearBcast.rounds(c)) },
	func(c *Call, i int, r *Round) {
		if c.Rank != c.Root {
			r.recv(c.Root, c.all(Out))
			return
		}
		for k, end := batch(i, c.Size-1); k < end; k++ {
			peer := c.absolute(k)
			r.send(peer, c.block(In, peer))
		}
		if i == 0 && !c.InPlace {
			r.copy(c.all(Out), c.block(In, c.Root))
		}
	},
}

// linearGather receives each block from its rank at the root.
var linearGather = phase{
	linearScatter.rounds,
	func(c *Call, i int, r *Round) {
		if c.Rank != c.Root {
			r.send(c.Root, c.all(In))
			return
		}
		for k, end := batch(i, c.Size-1); k < end; k++ {
			peer := c.absolute(k)
			r.recv(peer, c.block(Out, peer))
		}
		if i == 0 && !c.InPlace {
			r.copy(c.block(Out, c.Root), c.all(In))
		}
	},
}

// treeScratch is the size of the blocks of a rank's subtree in a binomial tree. A leaf needs none, and
// rank 0 as the root has them in its own buffer.
func treeScratch(c *Call) int {
	n := treeBlocks(c)
	if n == 1 || c.Root == 0 && c.Rank == 0 {
		return 0
	}
	return n * c.Bytes
}

// treeBlocks returns the number of ranks in the subtree of this rank.
func treeBlocks(c *Call) int {
	relative := c.relative()
	return min(subtree(relative, c.Size), c.Size-relative)
}

// treeBuffer returns the memory of the n blocks of the subtree of this rank that begin with the one at
// distance: buffer b if this is the root and has relative order, else Scratch.
func treeBuffer(c *Call, b Buffer, distance, n int) Slice {
	if c.Root != 0 || c.Rank != 0 {
		b = Scratch
	}
	return Slice{b, distance * c.Bytes, n * c.Bytes}
}

// binomialScatter passes the blocks of each subtree down a binomial tree.
var binomialScatter = phase{
	func(*Call) int { return 2 },
	func(c *Call, i int, r *Round) {
		relative, n := c.relative(), treeBlocks(c)
		switch {
		case i == 0 && relative == 0:
			if c.Root != 0 {
				c.rotate(r, Scratch, In, c.Root)
			}
			return
		case i == 0 && n == 1:
			r.recv(c.absolute(parent(relative)), c.all(Out))
			return
		case i == 0:
			r.recv(c.absolute(parent(relative)), treeBuffer(c, In, 0, n))
			return
		}
		for distance := subtree(relative, c.Size) / 2; distance > 0; distance /= 2 {
			if distance < n {
				r.send(c.absolute(relative+distance), treeBuffer(c, In, distance, min(distance, n-distance)))
			}
		}
		switch {
		case relative == 0 && !c.InPlace:
			r.copy(c.all(Out), c.block(In, c.Root))
		case relative != 0 && n > 1:
			r.copy(c.all(Out), c.all(Scratch))
		}
	},
}

// binomialGather passes the blocks of each subtree up a binomial tree.
var binomialGather = phase{
	func(*Call) int { return 2 },
	func(c *Call, i int, r *Round) {
		relative, n := c.relative(), treeBlocks(c)
		switch {
		case i == 1 && relative == 0:
			if c.Root != 0 {
				c.rotate(r, Out, Scratch, c.Size-c.Root)
			}
			return
		case i == 1 && n == 1:
			r.send(c.absolute(parent(relative)), c.ownBlock())
			return
		case i == 1:
			r.send(c.absolute(parent(relative)), treeBuffer(c, Out, 0, n))
			return
		}
		for distance := 1; distance < n; distance *= 2 {
			r.recv(c.absolute(relative+distance), treeBuffer(c, Out, distance, min(distance, n-distance)))
		}
		if place := treeBuffer(c, Out, 0, 1); (n > 1 || relative == 0) && place != c.ownBlock() {
			r.copy(place, c.ownBlock())
		}
	},
}

// rotate copies the blocks of src to dst, first those from block first on, and then those before it.
func (c *Call) rotate(r *Round, dst, src Buffer, first int) {
	n, before := c.Bytes, first*c.Bytes
	after := c.Size*n - before
	r.copy(Slice{dst, 0, after}, Slice{src, before, after})
	r.copy(Slice{dst, after, before}, Slice{src, 0, before})
}
