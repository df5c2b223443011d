package work

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// adiBound is the permitted error of an unknown. adiReference is the largest side up to
// which every rank also solves the whole grid.
const (
	adiBound     = 1e-9
	adiReference = 24
)

// reference returns the expected unknowns and the bound of their error. For small grids they are
// the solution by one rank, with the bound 0, and for large grids the exact solution of the step.
func (a *adi) reference() (want func(at [3]int) [adiVars]float64, bound float64) {
	if a.side > adiReference {
		return a.exact, adiBound
	}
	whole := newADI(a.coefficientSeed, a.side, 1, 0, a.solver)
	whole.makeRightSide(a.step)
	whole.solve()
	c := whole.cells[0]
	c.each(func(at [3]int, i int) { a.checkPoint(at, a.exact(at), c.unknowns(i), adiBound, "of the reference") })
	return c.at, 0
}

// checkPoint compares got, the unknowns of a point, with want. An error contains source, which says
// whether got is of this rank's cells, of the reference, or on a face from another rank.
func (a *adi) checkPoint(at [3]int, want [adiVars]float64, got []float64, bound float64, source string) {
	for v, w := range want {
		if !a.j.withinBound(w, got[v], bound) {
			a.j.failVerification(w, got[v], "unknown %d at %v %s in step %d", v, at, source, a.step)
		}
	}
}

// face is the data exchanged along an axis in direction d, 1 or -1: the outermost points of every
// cell but the last, two deep if possible.
type face struct {
	axis, d  int
	to, from int         // neighbours
	send     []edgePoint // points of this rank's cells
	recv     [][3]int    // received points of the whole grid
	out, in  []byte
	tag      int
}

// edgePoint is a point of a cell.
type edgePoint struct {
	cell *adiCell
	i    int
}

const faceDepth = 2

// makeFaces computes the points of all faces. Sender and receiver visit slices and points
// in the same order, therefore they correspond one to one.
func (a *adi) makeFaces() {
	for direction := range a.faces {
		f := &a.faces[direction]
		f.axis, f.d = direction/2, 1
		if direction%2 == 1 {
			f.d = -1
		}
		f.tag = 100 + direction // other tags than sweep
		f.to, f.from = a.neighbour(f.axis, f.d), a.neighbour(f.axis, -f.d)
		for s := range a.slices {
			c := a.cellInSlice(f.axis, s)
			if next := s + f.d; next >= 0 && next < a.slices {
				f.points(c, func(_ [3]int, i int) { f.send = append(f.send, edgePoint{c, i}) })
			}
			// The face for the cell in slice s comes from the cell before it, which has the
			// same coordinates on the other axes.
			if before := s - f.d; before >= 0 && before < a.slices {
				other := adiCell{from: c.from, n: c.n}
				other.from[f.axis] = partStart(a.side, a.slices, before)
				other.n[f.axis] = partStart(a.side, a.slices, before+1) - other.from[f.axis]
				f.points(&other, func(at [3]int, _ int) { f.recv = append(f.recv, at) })
			}
		}
		f.out, f.in = make([]byte, 8*adiVars*len(f.send)), make([]byte, 8*adiVars*len(f.recv))
	}
}

// points calls visit for the points of a cell that are less than faceDepth from its end in the
// face's direction.
func (f *face) points(c *adiCell, visit func(at [3]int, i int)) {
	c.each(func(at [3]int, i int) {
		inward := c.from[f.axis] + c.n[f.axis] - 1 - at[f.axis]
		if f.d < 0 {
			inward = at[f.axis] - c.from[f.axis]
		}
		if inward < faceDepth {
			visit(at, i)
		}
	})
}

// exchangeFaces exchanges all six faces, and checks the received points against want and bound. It
// posts the receives first, then the sends, and then waits for all.
func (a *adi) exchangeFaces(want func(at [3]int) [adiVars]float64, bound float64) {
	rs := make([]*mpi.Request, 0, 2*len(a.faces))
	for i := range a.faces {
		f := &a.faces[i]
		rs = append(rs, a.j.Irecv(f.in, f.from, f.tag))
	}
	for i := range a.faces {
		f := &a.faces[i]
		for k, p := range f.send {
			putFloats(f.out[8*adiVars*k:], p.cell.unknowns(p.i))
		}
		a.j.digestSent(f.to, f.out)
		rs = append(rs, a.j.Isend(f.out, f.to, f.tag))
	}
	a.j.waitAll(rs...)
	for i := range a.faces {
		f := &a.faces[i]
		a.j.digestReceived(f.from, f.in)
		where := fmt.Sprintf("on a face from rank %d", f.from)
		var got [adiVars]float64
		for k, at := range f.recv {
			getFloats(got[:], f.in[8*adiVars*k:])
			a.checkPoint(at, want(at), got[:], bound, where)
		}
	}
}

// adiCell is one cell of a rank.
type adiCell struct {
	place      [3]int    // index among all cells
	from, n    [3]int    // first point, and number of points
	u          []float64 // unknowns of points, along x, y, z
	eliminated []float64 // results of elimination
}

// line is a line of a cell along an axis: its first point, the stride and number of points.
type line struct {
	axis, first, stride, n int
	at                     [3]int // of the first point, in the whole grid
}

// extended returns the cell's box, extended by faceDepth at both ends of some axes within the grid.
func (c *adiCell) extended(side int, axes ...int) *adiCell {
	b := &adiCell{from: c.from, n: c.n}
	for _, axis := range axes {
		b.from[axis] = max(0, c.from[axis]-faceDepth)
		b.n[axis] = min(side, c.from[axis]+c.n[axis]+faceDepth) - b.from[axis]
	}
	b.u = make([]float64, adiVars*b.n[0]*b.n[1]*b.n[2])
	return b
}

// at returns the unknowns of a point of the whole grid that the cell has.
func (c *adiCell) at(p [3]int) (u [adiVars]float64) {
	i := ((p[2]-c.from[2])*c.n[1]+p[1]-c.from[1])*c.n[0] + p[0] - c.from[0]
	copy(u[:], c.u[adiVars*i:])
	return u
}

// unknowns returns the unknowns of the point with index i.
func (c *adiCell) unknowns(i int) []float64 { return c.u[adiVars*i:][:adiVars] }

// each calls do for the points of a cell, with their coordinates in the grid and their indexes.
func (c *adiCell) each(do func(at [3]int, i int)) {
	i := 0
	for z := range c.n[2] {
		for y := range c.n[1] {
			for x := range c.n[0] {
				do([3]int{c.from[0] + x, c.from[1] + y, c.from[2] + z}, i)
				i++
			}
		}
	}
}

// lines calls do for the lines of a cell along an axis, with their numbers.
func (c *adiCell) lines(axis int, do func(number int, l line)) {
	strides := [3]int{1, c.n[0], c.n[0] * c.n[1]}
	b, d := (axis+1)%3, (axis+2)%3
	for i := range c.n[b] * c.n[d] {
		pb, pd := i%c.n[b], i/c.n[b]
		at := c.from
		at[b] += pb
		at[d] += pd
		do(i, line{axis: axis, first: pb*strides[b] + pd*strides[d], stride: strides[axis], n: c.n[axis], at: at})
	}
}
