package coll

var allreduces = []*Algorithm{
	{Op: Allreduce, Name: "recursive-doubling", phases: []phase{once(startVector), once(join), doublingReduce, once(share)}, scratch: vectorScratch},
	{Op: Allreduce, Name: "reduce-bcast", phases: []phase{binomialReduce, binomialBcast}, scratch: vectorScratch},
	{Op: Allreduce, Name: "ring", Needs: Commutative, phases: []phase{once(startVector), ringReduceParts, ringParts}, scratch: vectorScratch},
	{Op: Allreduce, Name: "rabenseifner", Needs: Commutative, phases: []phase{once(startVector), once(join), halvingParts, allgatherHalves, once(share)}, scratch: vectorScratch},
	{Op: Allreduce, Name: "smp", Needs: Commutative | KnownNodes, phases: []phase{binomialReduce.withinNode(), once(join).amongLeaders(), doublingReduce.amongLeaders(), once(share).amongLeaders(), binomialBcast.withinNode()}, scratch: vectorScratch},
	{Op: Allreduce, Name: "arrival-direct", Needs: Commutative, RoundsByArrival: true, phases: []phase{once(arrivalReduceParts), once(arrivalParts)}, scratch: arrivalScratch},
}

// doublingReduce exchanges results at distances that double. Both ranks of a pair combine the same
// values in the same order, and so get the same bits.
var doublingReduce = phase{
	func(c *Call) int { return c.fold().rounds() },
	func(c *Call, i int, r *Round) {
		f := c.fold()
		if number := f.number(c.Rank); number >= 0 {
			peer := f.rank(number ^ 1<<i)
			received, own := c.operands(c.result(), f.isFirst(c, i))
			r.exchange(peer, received, peer, own)
			r.combineOperands(c.result(), received, own, peer < c.Rank)
		}
	},
}

// ringReduceParts passes each part once around the ring: each rank combines its own data with it. At
// the end, each rank has the result of its part.
var ringReduceParts = phase{
	ringRounds,
	func(c *Call, i int, r *Round) {
		buffer := c.result().Buf
		out, in := c.part(buffer, c.before(i+1)), c.part(buffer, (c.before(i+1)+c.Size-1)%c.Size)
		received, own := c.operands(in, c.combinesInput())
		if i == 0 {
			out = c.ofInput(out)
		}
		r.exchange(c.before(1), received, c.after(1), out)
		r.combineOperands(in, received, own, true)
	},
}

// Recursive halving: in each round a rank sends one half of its range of parts to a peer, and combines
// the other half with that of the peer. Parts are numbered like the working ranks, and are those of the
// ranks that a number stands for. In the end each working rank has the result of its own part.

// halves returns the peer of round i, and the ranges of parts that a working rank keeps and that it
// sends to the peer.
func (f fold) halves(c *Call, number, i int) (peer int, keep, give Slice) {
	n := f.pow2 >> (i + 1)
	return f.rank(number ^ n), f.parts(c, number&^(n-1), n), f.parts(c, (number^n)&^(n-1), n)
}

// parts returns the parts of n numbers, from first on.
func (f fold) parts(c *Call, first, n int) Slice {
	from, end := f.members(first, first+n)
	return c.parts(c.result().Buf, from, end-from)
}

// halvingParts is the reduce-scatter by recursive halving.
var halvingParts = phase{
	func(c *Call) int { return c.fold().rounds() },
	func(c *Call, i int, r *Round) {
		f := c.fold()
		if number := f.number(c.Rank); number >= 0 {
			peer, keep, give := f.halves(c, number, i)
			isInput := f.isFirst(c, i)
			received, own := c.operands(keep, isInput)
			if isInput {
				give = c.ofInput(give)
			}
			r.exchange(peer, received, peer, give)
			r.combineOperands(keep, received, own, peer < c.Rank)
		}
	},
}

// allgatherHalves returns the results of halvingParts to all ranks, by recursive doubling.
var allgatherHalves = phase{
	func(c *Call) int { return c.fold().rounds() },
	func(c *Call, i int, r *Round) {
		f := c.fold()
		if number := f.number(c.Rank); number >= 0 {
			peer, has, gets := f.halves(c, number, f.rounds()-1-i)
			r.exchange(peer, gets, peer, has)
		}
	},
}

// gatherHalves gathers the results of halvingParts at the root, which may have to get all of them from
// its partner.
var gatherHalves = phase{
	func(c *Call) int { return c.fold().rounds() + 1 },
	func(c *Call, i int, r *Round) {
		f := c.fold()
		number, root := f.number(c.Rank), f.number(c.Root)
		rests := root < 0
		if rests {
			root = f.number(c.Root + 1)
		}
		if i == f.rounds() {
			if rests && c.Rank == c.Root {
				r.recv(c.Root+1, c.all(Out))
			} else if rests && number == root {
				r.send(c.Root, c.result())
			}
			return
		}
		if number < 0 {
			return
		}
		// In each round, the ranks whose number differs from the root's in the bit of the round send.
		n := 1 << i
		if difference := number ^ root; difference&(n-1) == 0 {
			peer, has, gets := f.halves(c, number, f.rounds()-1-i)
			if difference&n != 0 {
				r.send(peer, has)
			} else {
				r.recv(peer, gets)
			}
		}
	},
}
