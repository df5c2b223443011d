package work

import "github.com/fabrictest/fabrictest/mpi"

// adi is a rank's part of an alternating direction implicit solver, as NPB's BT and SP: the
// grid is divided into q × q × q cells for q × q ranks; each rank has one cell in every
// slice along every axis (multipartition). In each slice of a sweep every rank has one cell
// to work on, and its input comes from the same neighbour every time.
//
// The right-hand side of a step is the product of the operators of the three axes and a known
// solution that differs in every step. Every unknown, and every number on the exchanged
// faces, is checked.
type adi struct {
	j               *job // nil for a whole grid
	solver          *lineSolver
	coefficientSeed uint64 // seed of the coefficients
	seed            uint64 // seed of the solution of the step
	side            int
	slices          int // slices along each axis, and cells of a rank: the root of the number of ranks
	i, k            int // position on the square of ranks
	cells           []*adiCell
	step            int
	boundary        boundary
	faces           [6]face
}

// boundary is the numbers that the lines of a cell receive from the previous cell and pass on to
// the next, and the messages with them.
type boundary struct {
	received, passed []float64
	in, out          []byte
	pending          *mpi.Request // the last send
}

// adiVars is the number of unknowns of a point.
const adiVars = 5

// lineSolver solves the lines of a cell along an axis.
type lineSolver struct {
	// apply applies the operator of an axis to a field at a point. It accesses points up to
	// faceDepth away within the grid.
	apply func(a *adi, axis int, at [3]int, field func(at [3]int) [adiVars]float64) [adiVars]float64
	// eliminate takes the numbers received from the previous cell of the line (nil for the first),
	// and stores those for the next in passed.
	eliminate func(a *adi, c *adiCell, l line, received, passed []float64)
	// solve does the back substitution, from the other end: received is from the next cell of the
	// line (nil for the last), and passed is for the previous one.
	solve func(a *adi, c *adiCell, l line, received, passed []float64)
	// forwardSize and backSize are how many numbers a line passes on in elimination and in back
	// substitution; scratch is how many elimination stores per point.
	forwardSize, backSize, scratch int
}

// newADI returns a rank's cells of a cubic grid with side points on each side, for the alternating
// direction implicit method: one cell in each slice of the grid along every axis (a
// multipartition). It leaves the field j nil: runADI sets it, and a solver of the whole grid, with
// ranks = 1, communicates with no rank.
func newADI(seed uint64, side, ranks, rank int, s *lineSolver) *adi {
	a := &adi{solver: s, coefficientSeed: seed, side: side, slices: isqrt(ranks)}
	a.i, a.k = rank%a.slices, rank/a.slices
	for c := range a.slices {
		cell := &adiCell{place: [3]int{(a.i + c) % a.slices, (a.k - c + a.slices) % a.slices, c}}
		points := 1
		for axis, at := range cell.place {
			cell.from[axis] = partStart(side, a.slices, at)
			cell.n[axis] = partStart(side, a.slices, at+1) - cell.from[axis]
			points *= cell.n[axis]
		}
		cell.eliminated = make([]float64, s.scratch*points)
		a.cells = append(a.cells, cell)
	}
	widest := (side + a.slices - 1) / a.slices
	n := widest * widest * max(s.forwardSize, s.backSize)
	a.boundary = boundary{received: make([]float64, n), passed: make([]float64, n), in: make([]byte, 8*n), out: make([]byte, 8*n)}
	return a
}

// neighbour is the rank with the next cells along an axis, or with d = -1 the previous ones. It
// follows from the places that newADI gives the cells: cell c has x = i+c, y = k-c and z = c, hence
// one step in z with the same x and y is one step back in i and one forward in k.
func (a *adi) neighbour(axis, d int) int {
	i, k := a.i, a.k
	switch axis {
	case 0:
		i += d
	case 1:
		k += d
	default:
		i, k = i-d, k+d
	}
	return (i+a.slices)%a.slices + (k+a.slices)%a.slices*a.slices
}

// run solves and checks a number of steps, each with another solution.
func (a *adi) run(steps int) {
	for step := range steps {
		a.makeRightSide(step)
		a.j.start()
		a.solve()
		a.j.stop()
		want, bound := a.reference()
		for _, c := range a.cells {
			c.each(func(at [3]int, i int) { a.checkPoint(at, want(at), c.unknowns(i), bound, "of this rank") })
		}
		a.exchangeFaces(want, bound)
	}
}

// makeRightSide sets the unknowns of all cells to the right-hand side of a step: the operators of
// all axes, applied to the exact solution in turn. An operator reads faceDepth points beyond its
// box along its axis, so the boxes of the operators applied before it are extended along that axis.
func (a *adi) makeRightSide(step int) {
	a.step, a.seed = step, key(a.coefficientSeed, uint64(step))
	for _, c := range a.cells {
		alongZ := a.applyTo(2, c.extended(a.side, 0, 1), a.exact)
		alongY := a.applyTo(1, c.extended(a.side, 0), alongZ.at)
		c.u = a.applyTo(0, c.extended(a.side), alongY.at).u
	}
}

// solve computes the solution of a step.
func (a *adi) solve() {
	for axis := range 3 {
		a.sweep(axis, forward)
		a.sweep(axis, backward)
	}
}

// exact is the exact solution of this step; 0 outside the grid.
func (a *adi) exact(at [3]int) (u [adiVars]float64) {
	for _, p := range at {
		if p < 0 || p >= a.side {
			return u
		}
	}
	k := key(a.seed, uint64((at[0]*a.side+at[1])*a.side+at[2]))
	for v := range u {
		u[v] = uniform(mix(k + uint64(v)))
	}
	return u
}

// coefficient is a random coefficient of a point, between -1 and 1.
func (a *adi) coefficient(axis int, at [3]int) float64 {
	return uniform(key(a.coefficientSeed, uint64(axis), uint64((at[0]*a.side+at[1])*a.side+at[2])))
}

// applyTo applies the operator of an axis to a field at all points of a box.
func (a *adi) applyTo(axis int, box *adiCell, field func([3]int) [adiVars]float64) *adiCell {
	box.each(func(at [3]int, i int) {
		y := a.solver.apply(a, axis, at, field)
		copy(box.u[adiVars*i:], y[:])
	})
	return box
}

// cellInSlice is the cell of this rank in a slice along an axis.
func (a *adi) cellInSlice(axis, s int) *adiCell {
	for _, c := range a.cells {
		if c.place[axis] == s {
			return c
		}
	}
	panic("work: a rank has a cell in every slice")
}

// sweep eliminates along an axis, or substitutes if back is set. In the order of Rashti 2010 Fig.
// 4.18, it posts the receive, does independent work, then waits for the last send and the receive.
func (a *adi) sweep(axis int, back bool) {
	direction, first, d, tag := "", 0, 1, 1+2*axis
	size, handle := a.solver.forwardSize, a.solver.eliminate
	if back {
		direction, first, d, tag = ", back", a.slices-1, -1, 2+2*axis
		size, handle = a.solver.backSize, a.solver.solve
	}
	defer annotateError("step %d, axis %d%s", a.step, axis, direction)
	from, to, b := a.neighbour(axis, -d), a.neighbour(axis, d), &a.boundary
	for n := range a.slices {
		c := a.cellInSlice(axis, first+n*d)
		lines := c.n[(axis+1)%3] * c.n[(axis+2)%3]
		var in *mpi.Request
		if n > 0 {
			in = a.j.Irecv(b.in[:8*size*lines], from, tag)
		}
		if a.j != nil { // nil for a reference solution of the whole grid
			a.j.spendComputePart(3 * 2 * a.slices) // a step has two sweeps along each of three axes
		}
		a.waitSend()
		if in != nil {
			a.j.wait(in)
			a.j.digestReceived(from, b.in[:8*size*lines])
			getFloats(b.received[:size*lines], b.in)
		}
		c.lines(axis, func(i int, l line) {
			var received []float64
			if n > 0 {
				received = b.received[size*i:][:size]
			}
			handle(a, c, l, received, b.passed[size*i:][:size])
		})
		if n < a.slices-1 {
			putFloats(b.out, b.passed[:size*lines])
			a.j.digestSent(to, b.out[:8*size*lines])
			b.pending = a.j.Isend(b.out[:8*size*lines], to, tag)
		}
	}
	a.waitSend()
}

// waitSend waits for the last send, whose buffer the next one uses.
func (a *adi) waitSend() {
	if b := &a.boundary; b.pending != nil {
		a.j.wait(b.pending)
		b.pending = nil
	}
}
