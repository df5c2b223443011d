package coll

// Through shared memory, data is copied twice, and messages are empty: they say that data is there, and
// that it was read and the memory is free again. Each rank has a part of the memory, which only it writes:
// in the next operation another rank may already write, while some ranks still read.

// slot returns the first Bytes bytes of the part of a rank.
func (c *Call) slot(rank int) Slice { return Slice{Shared, rank * (c.Shared / c.Size), c.Bytes} }

// others calls do for each rank but the root.
func (c *Call) others(do func(peer int)) {
	for k := 1; k < c.Size; k++ {
		do(c.absolute(k))
	}
}

// sharedBcast copies Out of the root to shared memory, and from there to Out of all other ranks.
var sharedBcast = phase{
	oneRound,
	func(c *Call, _ int, r *Round) {
		shared := c.slot(c.Root)
		if c.Rank != c.Root {
			r.recv(c.Root, nothing)
			r.wait()
			r.copy(c.all(Out), shared)
			r.send(c.Root, nothing)
			return
		}
		r.copy(shared, c.all(Out))
		c.others(func(peer int) { r.send(peer, nothing) })
		c.others(func(peer int) { r.recv(peer, nothing) })
	},
}

// sharedGather copies the blocks of all ranks to shared memory, at the same time, and the root copies
// them all from there.
var sharedGather = phase{
	oneRound,
	func(c *Call, _ int, r *Round) {
		if c.Rank != c.Root {
			r.copy(c.slot(c.Rank), c.all(In))
			r.exchange(c.Root, nothing, c.Root, nothing)
			return
		}
		c.others(func(peer int) { r.recv(peer, nothing) })
		if !c.InPlace {
			r.copy(c.block(Out, c.Root), c.all(In))
		}
		r.wait()
		stride := c.Shared / c.Size
		r.copyStrided(c.block(Out, 0), c.Bytes, c.slot(0), stride, c.Root)
		r.copyStrided(c.block(Out, c.Root+1), c.Bytes, c.slot(c.Root+1), stride, c.Size-c.Root-1)
		c.others(func(peer int) { r.send(peer, nothing) })
	},
}
