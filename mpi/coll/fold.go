package coll

// A fold lets algorithms for powers of two work with any number of ranks. While there are more ranks
// than the largest power of two, pairs of ranks 2i and 2i+1 join: the even one gives its input to the
// odd one, and rests. The ranks that work on have new numbers in the same order.

type fold struct {
	pow2  int // number of ranks that work
	extra int // number of pairs that joined
}

// fold returns the fold of the ranks of a call.
func (c *Call) fold() fold {
	pow2 := 1 << log2(c.Size+1) / 2
	return fold{pow2, c.Size - pow2}
}

// number returns the new number of a rank; -1 if it rests.
func (f fold) number(rank int) int {
	switch {
	case rank >= 2*f.extra:
		return rank - f.extra
	case rank%2 == 1:
		return rank / 2
	}
	return -1
}

// rank returns the rank with a new number.
func (f fold) rank(number int) int {
	if number < f.extra {
		return 2*number + 1
	}
	return number + f.extra
}

// rounds returns the number of rounds in which the working ranks exchange.
func (f fold) rounds() int { return log2(f.pow2) }

// members returns the first and the end of the ranks that the numbers from first to end stand for.
func (f fold) members(first, end int) (int, int) {
	return min(first, f.extra) + first, min(end, f.extra) + end
}

// isFirst reports whether a working rank combines its input, and not what it has combined before, in a round.
func (f fold) isFirst(c *Call, i int) bool {
	return i == 0 && c.Rank >= 2*f.extra && c.combinesInput()
}

// join gives the input of a resting rank to its partner, which combines it.
func join(c *Call, r *Round) {
	f := c.fold()
	result := c.result()
	switch {
	case c.Rank >= 2*f.extra:
	case c.Rank%2 == 0:
		r.send(c.Rank+1, c.input())
	default:
		received, own := c.operands(result, c.combinesInput())
		r.recv(c.Rank-1, received)
		r.combineOperands(result, received, own, true)
	}
}

// share gives the result to the resting ranks.
func share(c *Call, r *Round) {
	f := c.fold()
	switch {
	case c.Rank >= 2*f.extra:
	case c.Rank%2 == 0:
		r.recv(c.Rank+1, c.result())
	default:
		r.send(c.Rank-1, c.result())
	}
}
