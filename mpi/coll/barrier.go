package coll

var barriers = []*Algorithm{
	{Op: Barrier, Name: "dissemination", phases: []phase{{logRounds, disseminate}}},
	{Op: Barrier, Name: "tree", phases: []phase{treeArrive.withRoot0(), binomialBcast.withRoot0()}},
	{Op: Barrier, Name: "recursive-doubling", phases: []phase{once(join), doublingReduce, once(share)}},
	{Op: Barrier, Name: "linear", phases: []phase{linearArrive.withRoot0(), linearBcast.withRoot0()}},
	{Op: Barrier, Name: "smp", Needs: KnownNodes, phases: []phase{treeArrive.withinNode(), phase{logRounds, disseminate}.amongLeaders(), binomialBcast.withinNode()}},
	{Op: Barrier, Name: "multicast", Needs: Multicasts, phases: []phase{treeArrive.withRoot0(), multicastOut.withRoot0()}},
}

// nothing is an empty message.
var nothing = Slice{Buf: Out}

// disseminate notifies, in round i, the rank 2^i after this one.
func disseminate(c *Call, i int, r *Round) {
	r.exchange(c.before(1<<i), nothing, c.after(1<<i), nothing)
}

// treeArrive passes notifications up a binomial tree.
var treeArrive = phase{
	func(*Call) int { return 2 },
	func(c *Call, i int, r *Round) {
		relative := c.relative()
		if i == 1 {
			if relative != 0 {
				r.send(c.absolute(parent(relative, 2)), nothing)
			}
			return
		}
		for distance := subtree(relative, c.Size, 2) / 2; distance > 0; distance /= 2 {
			if relative+distance < c.Size {
				r.recv(c.absolute(relative+distance), nothing)
			}
		}
	},
}

// linearArrive passes a notification from each rank to the root.
var linearArrive = phase{
	linearRounds,
	func(c *Call, i int, r *Round) {
		if c.Rank != c.Root {
			r.send(c.Root, nothing)
			return
		}
		for k, end := batch(i, c.Size-1, maxAtOnce); k < end; k++ {
			r.recv(c.absolute(k), nothing)
		}
	},
}
