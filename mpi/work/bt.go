package work

import "fmt"

// blockTridiagonal solves lines of 5 × 5 blocks on a multipartition, as NPB's BT does. Each
// line passes on a block and a vector (240 bytes), and a vector on the way back (40), in
// large messages of a whole face to six neighbours, from named sources, with receives
// posted before the preceding work (Rashti 2010 §4.4.2, Fig. 4.18; Sur 2006 Table 1).
func blockTridiagonal(j *job) { runADI(j, &blockSolver) }

// runADI runs the steps of NPB's BT or SP: alternating direction implicit, with different solvers.
func runADI(j *job, solver *lineSolver) {
	size := adiSizes[j.p.Class]
	a := newADI(j.p.Seed, size.side, j.Size(), j.Rank(), solver)
	a.j = j
	a.makeFaces()
	a.run(j.setIterations(size.steps))
}

// adiUnfitReason returns why a number of ranks cannot share the problem of a class; "" if it can.
// A face of faceDepth points must lie in one cell.
func adiUnfitReason(c Class, ranks int) string {
	if isqrt(ranks)*faceDepth > adiSizes[c].side {
		return fmt.Sprintf("cells would have fewer than %d points along an axis", faceDepth)
	}
	return ""
}

var adiSizes = map[Class]struct{ side, steps int }{
	ClassT: {8, 2}, ClassS: {12, 10}, ClassW: {24, 20}, ClassA: {64, 20},
}

// blockSolver solves lines whose points are coupled by 5 × 5 blocks.
var blockSolver = lineSolver{
	apply: applyBlocks, eliminate: eliminateBlocks, solve: solveBlocks,
	forwardSize: blockSize + adiVars, backSize: adiVars, scratch: blockSize,
}

type block [adiVars][adiVars]float64

const blockSize = adiVars * adiVars

// lower and upper are the blocks that couple a point to the one before and after it, and middle
// is its diagonal block, with 4 to 6 on the diagonal. Each unknown is weakly coupled to the next.
func lower() block                             { return diagonal(-1, 0.1) }
func upper() block                             { return diagonal(-1, -0.1) }
func middle(a *adi, axis int, at [3]int) block { return diagonal(5+a.coefficient(axis, at), 0.2) }

// diagonal returns a block with d on its diagonal, and next to the right of each d, cyclically.
func diagonal(d, next float64) (b block) {
	for v := range b {
		b[v][v] = d
		b[v][(v+1)%adiVars] = next
	}
	return b
}

// times returns the product of a block and a vector.
func (b *block) times(x [adiVars]float64) (y [adiVars]float64) {
	for r := range b {
		for c := range x {
			y[r] += b[r][c] * x[c]
		}
	}
	return y
}

// applyBlocks implements lineSolver.apply: it returns the left-hand side of the equations of a
// point, a sum over the point and its two neighbours along the axis, with the values of field.
func applyBlocks(a *adi, axis int, at [3]int, field func([3]int) [adiVars]float64) (sum [adiVars]float64) {
	l, m, u := lower(), middle(a, axis, at), upper()
	for d, b := range []*block{&l, &m, &u} {
		p := at
		p[axis] += d - 1
		if p[axis] < 0 || p[axis] >= a.side {
			continue
		}
		y := b.times(field(p))
		for v := range sum {
			sum[v] += y[v]
		}
	}
	return sum
}

// eliminateBlocks implements lineSolver.eliminate, the forward elimination along a line of a cell.
// It turns the diagonal block of each point into the identity. The block that couples the point to
// the next one is then in c.eliminated, and the right-hand side in place of the old one. received
// has both for the last point of the previous cell, nil if there is none; passed gets those of this
// one.
func eliminateBlocks(a *adi, c *adiCell, l line, received, passed []float64) {
	var next block             // couples the previous point to its next one
	var right [adiVars]float64 // right-hand side of the previous point
	if received != nil {
		next.load(received)
		copy(right[:], received[blockSize:])
	}
	low, up := lower(), upper()
	at := l.at
	for i := range l.n {
		p := l.first + i*l.stride
		diag := middle(a, l.axis, at)
		here := c.unknowns(p)
		if i > 0 || received != nil {
			diag.subtract(&low, &next)
			product := low.times(right)
			for v := range here {
				here[v] -= product[v]
			}
		}
		next = up
		copy(right[:], here)
		diag.divide(&next, &right)
		copy(here, right[:])
		next.store(c.eliminated[blockSize*p:])
		at[l.axis]++
	}
	next.store(passed)
	copy(passed[blockSize:], right[:])
}

// solveBlocks implements lineSolver.solve, the back substitution along a line of a cell. From each
// point it subtracts the coupling block times the next point, whose values are known.
// received has the first point of the line in the next cell, nil if there is none; passed gets that
// of this cell.
func solveBlocks(_ *adi, c *adiCell, l line, received, passed []float64) {
	var known [adiVars]float64
	copy(known[:], received)
	for i := l.n - 1; i >= 0; i-- {
		p := l.first + i*l.stride
		here := c.unknowns(p)
		if i < l.n-1 || received != nil {
			var next block
			next.load(c.eliminated[blockSize*p:])
			product := next.times(known)
			for v := range here {
				here[v] -= product[v]
			}
		}
		copy(known[:], here)
	}
	copy(passed, known[:])
}

// load reads a block from numbers, row by row, and store writes it.
func (b *block) load(xs []float64) {
	for r := range b {
		copy(b[r][:], xs[adiVars*r:])
	}
}

func (b *block) store(xs []float64) {
	for r := range b {
		copy(xs[adiVars*r:], b[r][:])
	}
}

// subtract subtracts the product of x and y from b.
func (b *block) subtract(x, y *block) {
	for r := range b {
		for k := range y {
			for c := range b[r] {
				b[r][c] -= x[r][k] * y[k][c]
			}
		}
	}
}

// divide multiplies a block and a vector by the inverse of b, which is overwritten. The
// diagonal dominates: no pivoting is needed.
func (b *block) divide(x *block, y *[adiVars]float64) {
	for p := range b {
		scale := 1 / b[p][p]
		for c := range b[p] {
			b[p][c] *= scale
			x[p][c] *= scale
		}
		y[p] *= scale
		for r := range b {
			if r == p {
				continue
			}
			f := b[r][p]
			for c := range b[r] {
				b[r][c] -= f * b[p][c]
				x[r][c] -= f * x[p][c]
			}
			y[r] -= f * y[p]
		}
	}
}
