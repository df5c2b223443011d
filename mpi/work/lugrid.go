package work

// luGrid is a rank's part of all planes of a cubic grid, with a ghost point on each side of x and y.
// Outside the whole grid all is 0.
type luGrid struct {
	seed          uint64
	side          int
	rows, columns int
	row, column   int
	fx, fy        int // the first point
	nx, ny        int
	u, b          []float64
}

// The system: unknowns of a point are coupled to those of its six neighbours, and each to
// the next of the same point. The off-diagonal sum is 6.3, the diagonal 8.
const (
	luDiagonal = 8.0
	luCoupling = 0.3
	// luContraction bounds the factor by which a pair of sweeps reduces the error: each
	// sweep does by the off-diagonal sum over the diagonal.
	luContraction = (6 + luCoupling) / luDiagonal * (6 + luCoupling) / luDiagonal
)

// newLUGrid returns the points of a rank in rows × columns ranks: u is 0, and b the right-hand side
// for the exact solution.
func newLUGrid(seed uint64, side, rows, columns, rank int) *luGrid {
	g := &luGrid{seed: seed, side: side, rows: rows, columns: columns, row: rank / columns, column: rank % columns}
	g.fx, g.fy = partStart(side, columns, g.column), partStart(side, rows, g.row)
	g.nx, g.ny = partStart(side, columns, g.column+1)-g.fx, partStart(side, rows, g.row+1)-g.fy
	n := (g.nx + 2) * (g.ny + 2) * side * luVars
	g.u, g.b = make([]float64, n), make([]float64, n)
	g.each(func(x, y, z, v, at int) {
		sum := luDiagonal*g.exact(x, y, z, v) - luCoupling*g.exact(x, y, z, (v+1)%luVars)
		for _, d := range [][3]int{{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}} {
			sum -= g.exact(x+d[0], y+d[1], z+d[2], v)
		}
		g.b[at] = sum
	})
	return g
}

// exact is the exact solution, from which the right-hand side is computed.
func (g *luGrid) exact(x, y, z, v int) float64 {
	for _, p := range []int{x, y, z} {
		if p < 0 || p >= g.side {
			return 0
		}
	}
	return uniform(key(g.seed, uint64(((x*g.side+y)*g.side+z)*luVars+v)))
}

// index is the index of an unknown; local coordinates start at 1.
func (g *luGrid) index(x, y, z, v int) int {
	return ((z*(g.ny+2)+y-g.fy+1)*(g.nx+2)+x-g.fx+1)*luVars + v
}

// each calls do for all unknowns of the rank's points, with their coordinates in the grid, their
// number v at the point and their index.
func (g *luGrid) each(do func(x, y, z, v, at int)) {
	for z := range g.side {
		for y := g.fy; y < g.fy+g.ny; y++ {
			for x := g.fx; x < g.fx+g.nx; x++ {
				for v := range luVars {
					do(x, y, z, v, g.index(x, y, z, v))
				}
			}
		}
	}
}

// eachPlane calls sweep for the planes of a pair of sweeps: from the first to the last, and back.
func (g *luGrid) eachPlane(sweep func(z int, back bool)) {
	for z := range g.side {
		sweep(z, forward)
	}
	for z := g.side - 1; z >= 0; z-- {
		sweep(z, backward)
	}
}

// sweep relaxes the points of plane z from the first to the last, or back.
func (g *luGrid) sweep(z int, back bool) {
	for n := range g.nx * g.ny {
		if back {
			n = g.nx*g.ny - 1 - n
		}
		g.relax(g.fx+n%g.nx, g.fy+n/g.nx, z)
	}
}

// relax solves the equations of a point for its unknowns. Only x and y have ghost points: ranks do
// not divide z, and unknowns outside the grid are 0.
func (g *luGrid) relax(x, y, z int) {
	line := (g.nx + 2) * luVars
	plane := line * (g.ny + 2)
	first := g.index(x, y, z, 0)
	for v := range luVars {
		at := first + v
		sum := g.b[at] + g.u[at-luVars] + g.u[at+luVars] + g.u[at-line] + g.u[at+line] + luCoupling*g.u[first+(v+1)%luVars]
		if z > 0 {
			sum += g.u[at-plane]
		}
		if z < g.side-1 {
			sum += g.u[at+plane]
		}
		g.u[at] = sum / luDiagonal
	}
}

// edge is a line of n points of every plane along x or y: its first point and its step.
type edge struct{ x, y, n, dx, dy int }

// ownEdge is the edge of this rank's points in a direction.
func (g *luGrid) ownEdge(direction int) edge {
	switch direction {
	case north:
		return edge{x: g.fx, y: g.fy, n: g.nx, dx: 1}
	case south:
		return edge{x: g.fx, y: g.fy + g.ny - 1, n: g.nx, dx: 1}
	case west:
		return edge{x: g.fx, y: g.fy, n: g.ny, dy: 1}
	}
	return edge{x: g.fx + g.nx - 1, y: g.fy, n: g.ny, dy: 1} // east
}

// ghostEdge is the edge next to ownEdge, whose points belong to the neighbour.
func (g *luGrid) ghostEdge(direction int) edge {
	e := g.ownEdge(direction)
	e.x, e.y = e.x+luSteps[direction][0], e.y+luSteps[direction][1]
	return e
}

// getEdge copies the unknowns of an edge of plane z to a buffer.
func (g *luGrid) getEdge(buf []byte, e edge, z int) {
	for i := range e.n {
		at := g.index(e.x+i*e.dx, e.y+i*e.dy, z, 0)
		putFloats(buf[8*luVars*i:], g.u[at:at+luVars])
	}
}

// putEdge copies the unknowns of an edge of plane z from a buffer.
func (g *luGrid) putEdge(buf []byte, e edge, z int) {
	for i := range e.n {
		at := g.index(e.x+i*e.dx, e.y+i*e.dy, z, 0)
		getFloats(g.u[at:at+luVars], buf[8*luVars*i:])
	}
}
