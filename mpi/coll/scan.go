package coll

var scans = []*Algorithm{
	{Op: Scan, Name: "recursive-doubling", phases: []phase{once(copyInput), doublingScan}, scratch: vectorScratch},
	{Op: Scan, Name: "linear", phases: []phase{linearScan}, scratch: vectorScratch},
}

var exscans = []*Algorithm{
	{Op: Exscan, Name: "recursive-doubling", phases: []phase{once(startExscan), doublingExscan}, scratch: func(c *Call) int { return 2 * c.Bytes }},
	{Op: Exscan, Name: "linear", phases: []phase{linearExscan}, scratch: func(c *Call) int { return c.Bytes }},
}

// doublingScan sends, in round i, what this rank has combined to the rank 2^i after it.
var doublingScan = phase{
	logRounds,
	func(c *Call, i int, r *Round) {
		distance := 1 << i
		hasLower := c.Rank >= distance
		if hasLower {
			r.recv(c.Rank-distance, c.received(c.Bytes))
		}
		if c.Rank+distance < c.Size {
			r.send(c.Rank+distance, c.all(Out))
		}
		if hasLower {
			r.combineReceived(c.all(Out), c.received(c.Bytes), true)
		}
	},
}

// linearScan passes the result from rank to rank.
var linearScan = phase{
	func(*Call) int { return 2 },
	func(c *Call, i int, r *Round) {
		switch {
		case i == 0:
			copyInput(c, r)
			if c.Rank > 0 {
				r.recv(c.Rank-1, c.received(c.Bytes))
				r.combineReceived(c.all(Out), c.received(c.Bytes), true)
			}
		case c.Rank+1 < c.Size:
			r.send(c.Rank+1, c.all(Out))
		}
	},
}

// An exscan combines in Scratch, with the input of this rank, what it sends, and in Out what is the
// result.

func startExscan(c *Call, r *Round) { r.copy(c.all(Scratch), c.input()) }

// doublingExscan is doublingScan, and combines the received data also in Out, which has none before
// round 0.
var doublingExscan = phase{
	logRounds,
	func(c *Call, i int, r *Round) {
		whole := c.all(Scratch)
		received := whole.from(c.Bytes, c.Bytes)
		distance := 1 << i
		hasLower := c.Rank >= distance
		if hasLower {
			r.recv(c.Rank-distance, received)
		}
		if c.Rank+distance < c.Size {
			r.send(c.Rank+distance, whole)
		}
		if !hasLower {
			return
		}
		r.combineReceived(whole, received, true)
		if i == 0 {
			r.copy(c.all(Out), received)
		} else {
			r.combine(CombineFirst, c.all(Out), received)
		}
	},
}

// linearExscan passes the result from rank to rank.
var linearExscan = phase{
	func(*Call) int { return 2 },
	func(c *Call, i int, r *Round) {
		isLast := c.Rank+1 == c.Size
		switch {
		case i == 0 && c.Rank > 0:
			if !isLast {
				r.copy(c.all(Scratch), c.input())
			}
			r.recv(c.Rank-1, c.all(Out))
			if !isLast {
				r.combineReceived(c.all(Scratch), c.all(Out), true)
			}
		case i == 1 && !isLast && c.Rank == 0:
			r.send(1, c.input())
		case i == 1 && !isLast:
			r.send(c.Rank+1, c.all(Scratch))
		}
	},
}
