package work

// blockTridiagonal solves lines of 5 × 5 blocks on a multipartition, as NPB's BT does:
// of each line a block and a vector are handed on (240 bytes), and a vector on the way
// back (40), in messages of a whole face: large ones, to six neighbours, from
// named sources, with receives that are posted before the work that precedes them
// (Thesis §4.4.2, Fig. 4.18: nearly all speculation is right; Survey Table 1: nearly no
// message is unexpected).
func blockTridiagonal() *Workload {
	return adiWorkload("bt", "lines of 5 × 5 blocks on a multipartition (NPB BT)", func() lineSolver { return blockLines{} })
}

// adiWorkload is what bt and sp have in common.
func adiWorkload(name, title string, solver func() lineSolver) *Workload {
	return runner(&Workload{
		Name: name, Title: title, Paper: "Thesis §4.4.2, Fig. 4.18; Survey §3.2, Table 1",
		MinRanks: 4, RankRule: Square,
		unfit: func(c Class, ranks int) string {
			if isqrt(ranks)*faceDepth > adiSizes[c].side {
				return "cells would be of less than two points"
			}
			return ""
		},
	}, func(j *job) error {
		size := adiSizes[j.p.Class]
		a := newADI(j.p.Seed, size.side, j.Size(), j.Rank(), solver())
		a.j = j
		a.makeFaces()
		return a.run(j.steps(size.steps))
	})
}

var adiSizes = map[Class]struct{ side, steps int }{
	ClassT: {8, 2}, ClassS: {12, 10}, ClassW: {24, 20}, ClassA: {64, 20},
}

// blockLines are lines whose points are tied to their neighbours by 5 × 5 blocks.
type blockLines struct{}

type block [adiVars][adiVars]float64

// The blocks: a point's own has 4 to 6 in its diagonal, those to its neighbours -1.
// Beside the diagonals, each unknown is tied to the next a little.
func lower() (b block) { return diagonal(-1, 0.1) }
func upper() (b block) { return diagonal(-1, -0.1) }

func (blockLines) middle(a *adi, axis int, at [3]int) block {
	return diagonal(5+a.chance(axis, at), 0.2)
}

func diagonal(d, next float64) (b block) {
	for v := range b {
		b[v][v] = d
		b[v][(v+1)%adiVars] = next
	}
	return b
}

func (b *block) times(x [adiVars]float64) (y [adiVars]float64) {
	for r := range b {
		for c := range x {
			y[r] += b[r][c] * x[c]
		}
	}
	return y
}

func (s blockLines) apply(a *adi, axis int, at [3]int, field func([3]int) [adiVars]float64) (sum [adiVars]float64) {
	l, m, u := lower(), s.middle(a, axis, at), upper()
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

const blockSize = adiVars * adiVars

func (blockLines) forwardSize() int { return blockSize + adiVars }
func (blockLines) backSize() int    { return adiVars }
func (blockLines) scratch() int     { return blockSize }

// eliminate makes each point's own block the identity: what is left is the block to
// the next point, kept, and a right side, in its place.
func (s blockLines) eliminate(a *adi, c *adiCell, l line, before, after []float64) {
	var next block             // that of the point before
	var right [adiVars]float64 // and its right side
	if before != nil {
		next.from(before)
		copy(right[:], before[blockSize:])
	}
	low, up := lower(), upper()
	at := l.at
	for i := range l.n {
		p := l.first + i*l.stride
		own := s.middle(a, l.axis, at)
		here := c.u[adiVars*p:][:adiVars]
		if i > 0 || before != nil {
			own.subtract(&low, &next)
			gone := low.times(right)
			for v := range here {
				here[v] -= gone[v]
			}
		}
		next = up
		copy(right[:], here)
		own.divide(&next, &right)
		copy(here, right[:])
		next.to(c.kept[blockSize*p:])
		at[l.axis]++
	}
	next.to(after)
	copy(after[blockSize:], right[:])
}

// solve subtracts what is known of the next point.
func (blockLines) solve(_ *adi, c *adiCell, l line, before, after []float64) {
	var known [adiVars]float64
	copy(known[:], before)
	for i := l.n - 1; i >= 0; i-- {
		p := l.first + i*l.stride
		here := c.u[adiVars*p:][:adiVars]
		if i < l.n-1 || before != nil {
			var next block
			next.from(c.kept[blockSize*p:])
			gone := next.times(known)
			for v := range here {
				here[v] -= gone[v]
			}
		}
		copy(known[:], here)
	}
	copy(after, known[:])
}

func (b *block) from(xs []float64) {
	for r := range b {
		copy(b[r][:], xs[adiVars*r:])
	}
}

func (b *block) to(xs []float64) {
	for r := range b {
		copy(xs[adiVars*r:], b[r][:])
	}
}

// subtract takes the product of two blocks off.
func (b *block) subtract(x, y *block) {
	for r := range b {
		for k := range y {
			for c := range b[r] {
				b[r][c] -= x[r][k] * y[k][c]
			}
		}
	}
}

// divide multiplies a block and a vector by the inverse of b, which is lost. Its
// diagonal is large: no pivots are needed.
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
