package coll

var scatters = []*Algorithm{
	{Op: Scatter, Name: "linear", phases: []phase{scatterFromRoot(manyAtOnce)}},
	{Op: Scatter, Name: "binomial", Needs: EqualBlocks, phases: []phase{treeScatter(binary)}, scratch: treeScratch(binary)},
	{Op: Scatter, Name: "kport-direct", Unbuffered: true, phases: []phase{scatterFromRoot(ports).advertised()}},
	{Op: Scatter, Name: "kport-binomial", Unbuffered: true, Needs: EqualBlocks, phases: []phase{treeScatter(portRadix).advertised()}, scratch: treeScratch(portRadix)},
}

var gathers = []*Algorithm{
	{Op: Gather, Name: "linear", phases: []phase{gatherAtRoot(manyAtOnce)}},
	{Op: Gather, Name: "binomial", Needs: EqualBlocks, phases: []phase{treeGather(binary)}, scratch: treeScratch(binary)},
	{Op: Gather, Name: "kport-direct", Unbuffered: true, phases: []phase{gatherAtRoot(ports).advertised()}},
	{Op: Gather, Name: "kport-binomial", Unbuffered: true, Needs: EqualBlocks, phases: []phase{treeGather(portRadix).advertised()}, scratch: treeScratch(portRadix)},
	{Op: Gather, Name: "shared", Needs: EqualBlocks | KnownNodes, phases: []phase{sharedGather}, scratch: landingScratch, shared: slotBytes},
}

// rootRounds returns the number of rounds in which the root exchanges a message with each other rank.
func rootRounds(atOnce radix) func(*Call) int {
	return func(c *Call) int {
		if c.Rank != c.Root {
			return 1
		}
		return max(1, batches(c.Size-1, atOnce(c)))
	}
}

// scatterFromRoot returns a phase that sends each block from the root to its rank.
func scatterFromRoot(atOnce radix) phase {
	return phase{
		rootRounds(atOnce),
		func(c *Call, i int, r *Round) {
			if c.Rank != c.Root {
				r.recv(c.Root, c.all(Out))
				return
			}
			for k, end := batch(i, c.Size-1, atOnce(c)); k < end; k++ {
				peer := c.absolute(k)
				r.send(peer, c.block(In, peer))
			}
			if i == 0 && !c.InPlace {
				r.copy(c.all(Out), c.block(In, c.Root))
			}
		},
	}
}

// gatherAtRoot returns a phase that receives each block from its rank at the root.
func gatherAtRoot(atOnce radix) phase {
	return phase{
		rootRounds(atOnce),
		func(c *Call, i int, r *Round) {
			if c.Rank != c.Root {
				r.send(c.Root, c.all(In))
				return
			}
			for k, end := batch(i, c.Size-1, atOnce(c)); k < end; k++ {
				peer := c.absolute(k)
				r.recv(peer, c.block(Out, peer))
			}
			if i == 0 && !c.InPlace {
				r.copy(c.block(Out, c.Root), c.all(In))
			}
		},
	}
}

// treeScratch returns the size of the blocks of a rank's subtree. A leaf needs none, and rank 0 as the root
// has them in its own buffer.
func treeScratch(q radix) func(*Call) int {
	return func(c *Call) int {
		n := treeBlocks(c, q(c))
		if n == 1 || c.Root == 0 && c.Rank == 0 {
			return 0
		}
		return n * c.Bytes
	}
}

// treeBlocks returns the number of ranks in the subtree of this rank.
func treeBlocks(c *Call, radix int) int {
	relative := c.relative()
	return min(subtree(relative, c.Size, radix), c.Size-relative)
}

// treeBuffer returns the memory of the n blocks of the subtree of this rank that begin with the one at
// distance: buffer b if this is the root and has relative order, else Scratch.
func treeBuffer(c *Call, b Buffer, distance, n int) Slice {
	if c.Root != 0 || c.Rank != 0 {
		b = Scratch
	}
	return Slice{b, distance * c.Bytes, n * c.Bytes}
}

// treeScatter returns a phase that passes the blocks of each subtree down a tree.
func treeScatter(q radix) phase {
	return phase{
		func(*Call) int { return 2 },
		func(c *Call, i int, r *Round) {
			relative, radix := c.relative(), q(c)
			n := treeBlocks(c, radix)
			if i == 0 {
				switch {
				case relative > 0 && n == 1:
					r.recv(c.absolute(parent(relative, radix)), c.all(Out))
				case relative > 0:
					r.recv(c.absolute(parent(relative, radix)), treeBuffer(c, In, 0, n))
				case c.Root != 0:
					c.rotate(r, Scratch, In, c.Root)
				}
				return
			}
			children(relative, c.Size, radix, func(child, n int) {
				r.send(c.absolute(child), treeBuffer(c, In, child-relative, n))
			})
			switch {
			case relative == 0 && !c.InPlace:
				r.copy(c.all(Out), c.block(In, c.Root))
			case relative != 0 && n > 1:
				r.copy(c.all(Out), c.all(Scratch))
			}
		},
	}
}

// treeGather returns a phase that passes the blocks of each subtree up a tree.
func treeGather(q radix) phase {
	return phase{
		func(*Call) int { return 2 },
		func(c *Call, i int, r *Round) {
			relative, radix := c.relative(), q(c)
			n := treeBlocks(c, radix)
			if i == 1 {
				switch {
				case relative > 0 && n == 1:
					r.send(c.absolute(parent(relative, radix)), c.ownBlock())
				case relative > 0:
					r.send(c.absolute(parent(relative, radix)), treeBuffer(c, Out, 0, n))
				case c.Root != 0:
					c.rotate(r, Out, Scratch, c.Size-c.Root)
				}
				return
			}
			children(relative, c.Size, radix, func(child, n int) {
				r.recv(c.absolute(child), treeBuffer(c, Out, child-relative, n))
			})
			if place := treeBuffer(c, Out, 0, 1); (n > 1 || relative == 0) && place != c.ownBlock() {
				r.copy(place, c.ownBlock())
			}
		},
	}
}

// rotate copies the blocks of src to dst, first those from block first on, and then those before it.
func (c *Call) rotate(r *Round, dst, src Buffer, first int) {
	n, before := c.Bytes, first*c.Bytes
	after := c.Size*n - before
	r.copy(Slice{dst, 0, after}, Slice{src, before, after})
	r.copy(Slice{dst, after, before}, Slice{src, 0, before})
}
