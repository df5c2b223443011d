package work

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// conjugateGradient solves a sparse symmetric system as NPB's CG does. Ranks form a grid with as
// many or twice as many columns as rows; each has a block of the matrix. Products are summed along
// rows of ranks, with partners at halving distances, and exchanged across the diagonal; scalars are
// summed the same way, in messages of 8 bytes, the majority (Rashti 2010 Table 5.1). The loop has
// receives, sends and waits without work in between (ibid. Fig. 4.18). The number of partners grows
// with the logarithm of the ranks (ibid. §6.6.2, Sur 2006 Table 1).
func conjugateGradient(j *job) {
	size := map[Class]cgSize{
		ClassT: {unknowns: 256, perRow: 3, steps: 25},
		ClassS: {unknowns: 1400, perRow: 7, steps: 100},
		ClassW: {unknowns: 7000, perRow: 8, steps: 250},
		ClassA: {unknowns: 14000, perRow: 11, steps: 375},
		ClassB: {unknowns: 75000, perRow: 13, steps: 1875},
		ClassC: {unknowns: 150000, perRow: 15, steps: 1875},
	}[j.p.Class]
	c := newCG(j, size)
	steps := j.setIterations(size.steps)
	j.start()
	for done := 0; done < steps; done += cgRestart {
		c.solve(min(cgRestart, steps-done))
	}
	j.stop()
	j.addFigure("residual", c.lastResidual, "")
	c.check()
}

type cgSize struct{ unknowns, perRow, steps int }

// cgRestart is the number of steps after which the solution restarts, as in NPB: later
// steps would not improve it.
const cgRestart = 25

// cg is a rank's part of the solution. Vectors are those of its block of columns; the ranks
// of a column have the same.
type cg struct {
	j *job
	system
	cgPartners
	z, r, p, q   []float64
	sums         []float64 // of its block of rows
	vectors      floatBuffers
	scalars      floatBuffers
	scalarDigest uint64 // digest of all scalars
	lastSteps    int
	lastResidual float64
}

// cgPartners are the position of a rank on the grid, and its partners.
type cgPartners struct {
	rank, rows, cols int
	row, col         int
	rowPartners      []int  // partners along the row
	sent, kept       [2]int // part of a sum that goes to the first partner, and part that stays
	opposite         int    // the rank across the diagonal
}

// newCGPartners returns a rank's position, and its partners along the row. Each row is halved again
// and again; a partner has the same place in the other half.
func newCGPartners(rank, ranks int) (p cgPartners) {
	p.rank, p.rows = rank, 1<<(log2(ranks)/2)
	p.cols = ranks / p.rows
	p.row, p.col = rank/p.cols, rank%p.cols
	for group := p.cols; group > 1; group /= 2 {
		p.rowPartners = append(p.rowPartners, p.row*p.cols+(p.col+group/2)%group+p.col/group*group)
	}
	return p
}

// divide sets the parts of a sum over rows that this rank sends and keeps, and its opposite: the
// rank across the diagonal, which needs the kept part. If the grid of ranks has twice as many
// columns as rows, the ranks of a pair of adjacent columns each keep one half of the sum and send
// the other, and the opposite is the transposed pair's rank that keeps the same half.
func (p *cgPartners) divide(rows int) {
	p.kept = [2]int{0, rows}
	p.sent = p.kept
	p.opposite = p.col*p.cols + p.row
	if p.rows != p.cols {
		odd, half := p.col%2, rows/2
		p.kept = [2]int{odd * half, (odd + 1) * half}
		p.sent = [2]int{(1 - odd) * half, (2 - odd) * half}
		p.opposite = p.col/2*p.cols + 2*p.row + odd
	}
}

// newCG returns a rank's part of a random system, of a size rounded up to a multiple of columns.
func newCG(j *job, size cgSize) *cg {
	c := &cg{j: j, cgPartners: newCGPartners(j.Rank(), j.Size())}
	n := (size.unknowns + c.cols - 1) / c.cols * c.cols
	high, wide := n/c.rows, n/c.cols
	c.divide(high)
	c.system = makeSystem(j.p.Seed, n, size.perRow, matrixBlock{c.row * high, high, c.col * wide, wide})
	for _, v := range []*[]float64{&c.z, &c.r, &c.p, &c.q} {
		*v = make([]float64, wide)
	}
	c.sums = make([]float64, high)
	c.vectors, c.scalars = newFloatBuffers(high), newFloatBuffers(1)
	return c
}

// Tags of the three exchanges.
const (
	cgTagSum = iota + 1
	cgTagTranspose
	cgTagScalar
)

// multiply computes y = A·x, where each rank has a block of A: it sums the products of the blocks
// with the ranks of its row, and exchanges the result with the opposite rank, at the transposed
// position.
func (c *cg) multiply(y, x []float64) {
	c.block.multiply(c.sums, x)
	c.j.spendComputePart(1)
	kept := c.sums[c.kept[0]:c.kept[1]]
	other := make([]float64, len(kept))
	// The nearest partner first: the sum may be divided with it.
	for i := len(c.rowPartners) - 1; i >= 0; i-- {
		out := kept
		if i == len(c.rowPartners)-1 {
			out = c.sums[c.sent[0]:c.sent[1]]
		}
		c.vectors.exchange(c.j, other, out, c.rowPartners[i], cgTagSum)
		for k := range kept {
			kept[k] += other[k]
		}
	}
	if c.opposite == c.rank {
		copy(y, kept)
		return
	}
	c.vectors.exchange(c.j, y, kept, c.opposite, cgTagTranspose)
}

// floatBuffers are the buffers of an exchange, which every exchange reuses.
type floatBuffers struct{ out, in []byte }

func newFloatBuffers(n int) floatBuffers { return floatBuffers{make([]byte, 8*n), make([]byte, 8*n)} }

// exchange sends numbers to a peer and receives as many as recv has.
func (b *floatBuffers) exchange(j *job, recv, send []float64, peer, tag int) {
	out, in := b.out[:8*len(send)], b.in[:8*len(recv)]
	putFloats(out, send)
	j.exchangeWith(out, in, peer, tag)
	getFloats(recv, in)
}

// innerProduct returns the inner product of two vectors on all ranks, and adds it to the digest
// that check compares.
func (c *cg) innerProduct(x, y []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += x[i] * y[i]
	}
	var other [1]float64
	for _, partner := range c.rowPartners {
		c.scalars.exchange(c.j, other[:], []float64{sum}, partner, cgTagScalar)
		sum += other[0]
	}
	c.scalarDigest = key(c.scalarDigest, math.Float64bits(sum))
	return sum
}

// solve runs steps of the conjugate gradient method from the solution 0, and computes the residual.
func (c *cg) solve(steps int) {
	c.lastSteps = steps
	clear(c.z)
	copy(c.r, c.right)
	copy(c.p, c.right)
	rho := c.innerProduct(c.r, c.r)
	for range steps {
		c.multiply(c.q, c.p)
		d := c.innerProduct(c.p, c.q)
		if rho == 0 || d == 0 {
			break // the residual is 0 on all ranks
		}
		alpha, before := rho/d, rho
		for i := range c.z {
			c.z[i] += alpha * c.p[i]
			c.r[i] -= alpha * c.q[i]
		}
		rho = c.innerProduct(c.r, c.r)
		for i := range c.p {
			c.p[i] = c.r[i] + rho/before*c.p[i]
		}
	}
	// The residual of the iteration would not show a wrong product.
	c.multiply(c.q, c.z)
	for i := range c.q {
		c.q[i] = c.right[i] - c.q[i]
	}
	c.lastResidual = math.Sqrt(c.innerProduct(c.q, c.q))
}

// check compares the solution with the exact one, checks the bound of the residual, and compares
// the inner products of all ranks, which must be equal to the bit.
func (c *cg) check() {
	j := c.j
	maxNorm := 1.5 * math.Sqrt(float64(len(c.right)*c.cols)) // of the solution, whose elements are at most 1.5
	// The error after k steps is at most 2·√κ·contraction^k·|solution|, with the condition number
	// κ ≤ 3; 1e-10 is for rounding errors.
	bound := 1e-10 + 2*math.Sqrt(3)*math.Pow(cgContraction, float64(c.lastSteps))*maxNorm
	for i, want := range c.solution {
		j.checkWithin(want, c.z[i], bound, "solution at %d, bound %.2g", c.col*len(c.solution)+i, bound)
	}
	j.checkSmall(c.lastResidual, bound*c.norm, "residual")
	all := make([]byte, 8*j.Size())
	j.Allgather(binary.LittleEndian.AppendUint64(nil, c.scalarDigest), all)
	for rank := range j.Size() {
		j.checkEqual(c.scalarDigest, binary.LittleEndian.Uint64(all[8*rank:]), "digest of all scalars, of rank %d", rank)
	}
}

// sparse is a block of a matrix, in compressed rows.
type sparse struct {
	from   []int // start of each row, and the end
	column []int
	value  []float64
}

// multiply computes y = block·x.
func (s *sparse) multiply(y, x []float64) {
	for row := range y {
		sum := 0.0
		for k := s.from[row]; k < s.from[row+1]; k++ {
			sum += s.value[k] * x[s.column[k]]
		}
		y[row] = sum
	}
}

// system is a rank's part of a matrix and its right-hand side.
type system struct {
	block    sparse
	solution []float64 // of its columns
	right    []float64 // right-hand side: matrix times solution, of its columns
	norm     float64   // bound of the operator norm
}

// cgContraction is the factor by which a step reduces the error. The diagonal is constant
// and twice as large as the rest of any row, therefore the condition number is at most 3,
// and (√3 − 1)/(√3 + 1) = 0.268.
const cgContraction = 0.27

// matrixBlock is a block of a matrix.
type matrixBlock struct{ firstRow, rows, firstCol, cols int }

// makeSystem generates a symmetric positive definite matrix with a few random elements per
// row, and returns a block of it. Every rank draws all elements. The diagonal is more than twice
// the absolute sum of the rest of any row, which bounds the norm by 1.5 times the diagonal.
func makeSystem(seed uint64, n, perRow int, b matrixBlock) system {
	type element struct {
		row, col int
		value    float64
	}
	var mine []element
	absSum := make([]float64, n) // of the off-diagonal elements, by row
	solution, product := make([]float64, n), make([]float64, n)
	for i := range n {
		solution[i] = 1 + uniform(key(seed, uint64(i)))/2
	}
	add := func(row, col int, v float64) {
		product[row] += v * solution[col]
		if row, col := row-b.firstRow, col-b.firstCol; row >= 0 && row < b.rows && col >= 0 && col < b.cols {
			mine = append(mine, element{row, col, v})
		}
	}
	for i := range n {
		for k := range perRow {
			draw := key(seed, uint64(i), uint64(k))
			other, v := int(draw%uint64(n)), uniform(mix(draw))
			if other == i {
				continue
			}
			add(i, other, v)
			add(other, i, v)
			absSum[i] += max(v, -v)
			absSum[other] += max(v, -v)
		}
	}
	diagonal := 1 + 2*slices.Max(absSum)
	for i := range n {
		add(i, i, diagonal)
	}
	slices.SortStableFunc(mine, func(a, b element) int { return cmp.Or(cmp.Compare(a.row, b.row), cmp.Compare(a.col, b.col)) })
	s := system{solution: solution[b.firstCol:][:b.cols], right: product[b.firstCol:][:b.cols], norm: 1.5 * diagonal}
	s.block.from = make([]int, b.rows+1)
	for _, e := range mine {
		s.block.from[e.row+1]++
		s.block.column, s.block.value = append(s.block.column, e.col), append(s.block.value, e.value)
	}
	for row := range b.rows {
		s.block.from[row+1] += s.block.from[row]
	}
	return s
}
