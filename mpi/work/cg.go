package work

import (
	"encoding/binary"
	"math"
)

// conjugateGradient solves a sparse symmetric system as NPB's CG does. Ranks form a grid
// with as many or twice as many columns as rows; each has a block of the matrix. Products
// are summed along rows with halving partners and exchanged across the diagonal; scalars
// are summed the same way, in messages of 8 bytes, which are the majority (Thesis Table
// 5.1). There are no collectives and no wildcards in the loop: receive, send, wait, without
// work in between (Thesis Fig. 4.18), therefore speculation gains nothing. The number of
// partners grows with the logarithm of the ranks (Thesis §6.6.2, Survey Table 1).
func conjugateGradient() *Workload {
	return newWorkload(&Workload{
		Name: "cg", Title: "conjugate gradient on a sparse matrix (NPB CG)", Paper: "Thesis §4.3.1, Fig. 4.18, Tables 5.1 and 6.1",
		MinRanks: 1, RankRule: PowerOfTwo,
	}, func(j *job) {
		size := map[Class]cgSize{
			ClassT: {unknowns: 256, perRow: 3, steps: 25},
			ClassS: {unknowns: 1400, perRow: 7, steps: 100},
			ClassW: {unknowns: 7000, perRow: 8, steps: 250},
			ClassA: {unknowns: 14000, perRow: 11, steps: 375},
		}[j.p.Class]
		c := newCG(j, size)
		c.solveAll(j.setIterations(size.steps))
		c.check()
	})
}

type cgSize struct{ unknowns, perRow, steps int }

// cgRestart is the number of steps after which the solution restarts, as in NPB: later
// steps would not improve it.
const cgRestart = 25

// cg is a rank's part of the solution. Vectors are those of its block of columns; the ranks
// of a column have the same.
type cg struct {
	j            *job
	rows, cols   int // of the grid of ranks
	row, col     int
	rank         int
	block        sparse
	want, b      []float64
	norm         float64 // of the matrix
	z, r, p, q   []float64
	sums         []float64 // of its block of rows
	across       []int     // partners along the row
	sent, kept   [2]int    // part of sums that goes to the first partner, and part that stays
	opposite     int
	send, recv   []byte
	scalarIn     [8]byte
	scalarOut    [8]byte
	history      uint64 // digest of all scalars
	lastSteps    int
	lastResidual float64
}

func newCG(j *job, size cgSize) *cg {
	c := &cg{j: j, rank: j.Rank()}
	ranks := j.Size()
	c.rows = 1 << (log2(ranks) / 2)
	c.cols = ranks / c.rows
	c.row, c.col = c.rank/c.cols, c.rank%c.cols
	n := (size.unknowns + c.cols - 1) / c.cols * c.cols
	high, wide := n/c.rows, n/c.cols
	m := makeMatrix(j.p.Seed, n, size.perRow, c.row*high, high, c.col*wide, wide)
	c.block, c.want, c.b, c.norm = m.block, m.solution, m.product, m.norm
	for _, v := range []*[]float64{&c.z, &c.r, &c.p, &c.q} {
		*v = make([]float64, wide)
	}
	c.sums = make([]float64, high)
	c.send, c.recv = make([]byte, 8*high), make([]byte, 8*high)

	for group := c.cols; group > 1; group /= 2 {
		c.across = append(c.across, c.row*c.cols+(c.col+group/2)%group+c.col/group*group)
	}
	// With twice as many columns as rows, ranks keep only the half of a sum that the rank
	// across the diagonal needs.
	c.kept = [2]int{0, high}
	c.opposite = c.col*c.cols + c.row
	c.sent = c.kept
	if c.rows != c.cols {
		odd := c.rank % 2
		c.kept = [2]int{odd * wide, (odd + 1) * wide}
		c.sent = [2]int{(1 - odd) * wide, (2 - odd) * wide}
		c.opposite = 2*(c.rank/2%c.rows*c.rows+c.rank/2/c.rows) + odd
	}
	return c
}

// Tags of the three exchanges.
const (
	cgTagSum = iota + 1
	cgTagTranspose
	cgTagScalar
)

// multiply computes y = A·x.
func (c *cg) multiply(y, x []float64) {
	c.block.multiply(c.sums, x)
	c.j.compute(1)
	// The nearest partner first: the sum may be divided with it.
	for i := len(c.across) - 1; i >= 0; i-- {
		out := c.kept
		if i == len(c.across)-1 {
			out = c.sent
		}
		kept := c.sums[c.kept[0]:c.kept[1]]
		send, recv := c.send[:8*(out[1]-out[0])], c.recv[:8*len(kept)]
		putFloats(send, c.sums[out[0]:out[1]])
		c.j.exchangeWith(send, recv, c.across[i], cgTagSum)
		for k := range kept {
			kept[k] += getFloat(recv[8*k:])
		}
	}
	kept := c.sums[c.kept[0]:c.kept[1]]
	if c.opposite == c.rank {
		copy(y, kept)
		return
	}
	send, recv := c.send[:8*len(kept)], c.recv[:8*len(y)]
	putFloats(send, kept)
	c.j.exchangeWith(send, recv, c.opposite, cgTagTranspose)
	getFloats(y, recv)
}

// product is the inner product of two vectors.
func (c *cg) product(x, y []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += x[i] * y[i]
	}
	for _, partner := range c.across {
		putFloats(c.scalarOut[:], []float64{sum})
		c.j.exchangeWith(c.scalarOut[:], c.scalarIn[:], partner, cgTagScalar)
		sum += getFloat(c.scalarIn[:])
	}
	c.history = key(c.history, math.Float64bits(sum))
	return sum
}

// solveAll solves the system repeatedly, for a number of steps.
func (c *cg) solveAll(steps int) {
	c.j.start()
	for done := 0; done < steps; done += cgRestart {
		c.solve(min(cgRestart, steps-done))
	}
	c.j.stop()
	c.j.addFigure("residual", c.lastResidual, "")
}

func (c *cg) solve(steps int) {
	c.lastSteps = steps
	clear(c.z)
	copy(c.r, c.b)
	copy(c.p, c.b)
	rho := c.product(c.r, c.r)
	for range steps {
		c.multiply(c.q, c.p)
		d := c.product(c.p, c.q)
		if rho == 0 || d == 0 {
			break // the residual is 0 on all ranks
		}
		alpha, before := rho/d, rho
		for i := range c.z {
			c.z[i] += alpha * c.p[i]
			c.r[i] -= alpha * c.q[i]
		}
		rho = c.product(c.r, c.r)
		for i := range c.p {
			c.p[i] = c.r[i] + rho/before*c.p[i]
		}
	}
	c.residual()
}

// residual computes the residual with a separate product, because the residual of the
// iteration would not show a wrong product.
func (c *cg) residual() {
	c.multiply(c.q, c.z)
	for i := range c.q {
		c.q[i] = c.b[i] - c.q[i]
	}
	sum := c.product(c.q, c.q)
	c.lastResidual = math.Sqrt(sum)
}

// check compares the solution with the exact one, and the scalars of all ranks, which must
// be equal to the bit.
func (c *cg) check() {
	j := c.j
	begun := 1.5 * math.Sqrt(float64(len(c.b)*c.cols)) // bound of the norm of the solution
	bound := 1e-10 + 2*math.Sqrt(3)*math.Pow(cgContraction, float64(c.lastSteps))*begun
	for i, want := range c.want {
		if !j.withinBound(want, c.z[i], bound) {
			j.failVerification(want, c.z[i], "solution at %d, bound %.2g", c.col*len(c.want)+i, bound)
		}
	}
	if !j.withinBound(0, c.lastResidual, bound*c.norm) {
		j.failVerification("nearly 0", c.lastResidual, "residual, bound %.2g", bound*c.norm)
	}
	all := make([]byte, 8*j.Size())
	j.Allgather(binary.LittleEndian.AppendUint64(nil, c.history), all)
	for rank := range j.Size() {
		j.checkEqual(c.history, binary.LittleEndian.Uint64(all[8*rank:]), "digest of all scalars, of rank %d", rank)
	}
}
