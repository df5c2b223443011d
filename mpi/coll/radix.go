package coll

// A k-port algorithm exchanges messages with k peers at once, where others use one: k is the number of
// ports of each rank. Trees and logarithmic algorithms then have the radix k+1 instead of 2.

// radix is the radix of an algorithm in a call.
type radix func(*Call) int

func binary(*Call) int { return 2 }

// portRadix is the radix of k-port algorithms.
func portRadix(c *Call) int { return ports(c) + 1 }

// ports returns the number of ports of each rank.
func ports(c *Call) int { return max(1, c.Ports) }

// manyAtOnce is the number of peers with which linear algorithms exchange messages at once.
func manyAtOnce(*Call) int { return maxAtOnce }

// digits returns the number of digits of the numbers below n.
func digits(n, radix int) (all int) {
	if radix == 2 {
		return log2(n)
	}
	for weight := 1; weight < n; weight *= radix {
		all++
	}
	return all
}

// rounds returns the number of digits of the ranks.
func (q radix) rounds(c *Call) int { return digits(c.Size, q(c)) }

// power returns the weight of a digit.
func power(radix, digit int) int {
	weight := 1
	for range digit {
		weight *= radix
	}
	return weight
}

// In a tree, ranks are relative to the root: clearing the lowest digit that is not 0 of a relative rank
// gives its parent. The subtree of a rank has the ranks from it on. With radix 2 it is a
// binomial tree.

// parent returns the parent of a relative rank other than 0.
func parent(relative, radix int) int {
	if radix == 2 {
		return relative & (relative - 1)
	}
	return relative - relative%(subtree(relative, relative, radix)*radix)
}

// subtree returns the largest size of the subtree of a relative rank: a power of the radix. The subtree
// ends before at the number of ranks.
func subtree(relative, size, radix int) int {
	switch {
	case radix == 2 && relative > 0:
		return relative & -relative
	case radix == 2:
		return 1 << log2(size)
	}
	n := 1
	for n < size && relative%(n*radix) == 0 {
		n *= radix
	}
	return n
}

// children calls do for each child of a relative rank, those with the largest subtrees first.
func children(relative, size, radix int, do func(child, subtree int)) {
	for n := subtree(relative, size, radix) / radix; n > 0; n /= radix {
		for child := relative + n; child < min(relative+n*radix, size); child += n {
			do(child, min(n, size-child))
		}
	}
}
