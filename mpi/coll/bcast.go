package coll

var bcasts = []*Algorithm{
	{Op: Bcast, Name: "binomial", phases: []phase{binomialBcast}},
	{Op: Bcast, Name: "linear", phases: []phase{linearBcast}},
	{Op: Bcast, Name: "van-de-geijn", phases: []phase{scatterParts, ringParts}},
	{Op: Bcast, Name: "scatter-doubling", Needs: PowerOfTwo, phases: []phase{scatterParts, doublingParts}},
	{Op: Bcast, Name: "chain", phases: []phase{chainBcast}},
	{Op: Bcast, Name: "shared", Needs: KnownNodes, phases: []phase{binomialBcast.amongLeaders(), sharedBcast.withinNode()}, shared: slotBytes},
	{Op: Bcast, Name: "smp", Needs: KnownNodes, phases: []phase{binomialBcast.amongLeaders(), binomialBcast.withinNode()}},
	{Op: Bcast, Name: "multicast", Needs: Multicasts, phases: []phase{treeArrive.ifRendezvous(), multicastOut}},
}

// binomialBcast receives Out from the parent, and sends it to all children at once: a rendezvous send
// completes only when its data has arrived.
var binomialBcast = phase{
	func(*Call) int { return 2 },
	func(c *Call, i int, r *Round) {
		relative := c.relative()
		if i == 0 {
			if relative != 0 {
				r.recv(c.absolute(parent(relative, 2)), c.all(Out))
			}
			return
		}
		for distance := subtree(relative, c.Size, 2) / 2; distance > 0; distance /= 2 {
			if relative+distance < c.Size {
				r.send(c.absolute(relative+distance), c.all(Out))
			}
		}
	},
}

// linearBcast sends Out from the root to each rank.
var linearBcast = phase{
	linearRounds,
	func(c *Call, i int, r *Round) {
		if c.Rank != c.Root {
			r.recv(c.Root, c.all(Out))
			return
		}
		for k, end := batch(i, c.Size-1, maxAtOnce); k < end; k++ {
			r.send(c.absolute(k), c.all(Out))
		}
	},
}

// scatterParts scatters the parts of Out of the root in a binomial tree: the rank with relative
// number k gets part k, and first those of its subtree.
var scatterParts = phase{
	func(*Call) int { return 2 },
	func(c *Call, i int, r *Round) {
		relative := c.relative()
		size := subtree(relative, c.Size, 2)
		if i == 0 {
			if relative != 0 {
				r.recv(c.absolute(parent(relative, 2)), c.parts(Out, relative, min(size, c.Size-relative)))
			}
			return
		}
		for distance := size / 2; distance > 0; distance /= 2 {
			if child := relative + distance; child < c.Size {
				r.send(c.absolute(child), c.parts(Out, child, min(distance, c.Size-child)))
			}
		}
	},
}

// ringParts passes the parts of Out once around the ring. At the start, the rank with relative number
// k has part k.
var ringParts = phase{
	ringRounds,
	func(c *Call, i int, r *Round) {
		relative := c.relative()
		has, gets := (relative-i+c.Size)%c.Size, (relative-i-1+c.Size)%c.Size
		r.exchange(c.before(1), c.part(Out, gets), c.after(1), c.part(Out, has))
	},
}

// doublingParts doubles, in each round, the parts of Out that a rank has, from part k at the rank
// with relative number k.
var doublingParts = phase{
	logRounds,
	func(c *Call, i int, r *Round) {
		relative, n := c.relative(), 1<<i
		mine, theirs := relative&^(n-1), (relative^n)&^(n-1)
		peer := c.absolute(relative ^ n)
		r.exchange(peer, c.parts(Out, theirs, n), peer, c.parts(Out, mine, n))
	},
}

// chainBytes is the size of the segments of a chain.
const chainBytes = 32 << 10

// chainBcast passes segments of Out along the ranks: a rank receives a segment while it sends the one
// before.
var chainBcast = phase{
	func(c *Call) int { return chainSegments(c) + 1 },
	func(c *Call, i int, r *Round) {
		segment := func(k int) Slice {
			off := k * chainBytes
			return Slice{Out, off, min(chainBytes, c.Bytes-off)}
		}
		relative := c.relative()
		if relative > 0 && i < chainSegments(c) {
			r.recv(c.before(1), segment(i))
		}
		if relative < c.Size-1 && i > 0 {
			r.send(c.after(1), segment(i-1))
		}
	},
}

func chainSegments(c *Call) int { return max(1, (c.Bytes+chainBytes-1)/chainBytes) }
