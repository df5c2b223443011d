package work

import (
	"github.com/fabrictest/fabrictest/mpi"
)

// adiBound is the permitted error of an unknown. adiReference is the largest side up to
// which every rank also solves the whole grid.
const (
	adiBound     = 1e-9
	adiReference = 24
)

// reference returns the expected unknowns and their bound: those of an undivided solution,
// which must be equal to the bit, or for large grids the exact solution of the step.
func (a *adi) reference() (want func(at [3]int) [adiVars]float64, bound float64) {
	if a.side > adiReference {
		return a.exact, adiBound
	}
	whole := newADI(a.coefficientSeed, a.side, 1, 0, a.solver)
	whole.makeRightSide(a.step)
	whole.solve()
	c := whole.cells[0]
	c.each(func(at [3]int, i int) {
		for v, w := range a.exact(at) {
			if got := c.u[adiVars*i+v]; !a.j.withinBound(w, got, adiBound) {
				a.j.failVerification(w, got, "unknown %d at %v in step %d of the reference", v, at, a.step)
			}
		}
	})
	return c.at, 0
}

// check compares every unknown.
func (a *adi) check(want func(at [3]int) [adiVars]float64, bound float64) {
	for _, c := range a.cells {
		c.each(func(at [3]int, i int) {
			for v, w := range want(at) {
				if got := c.u[adiVars*i+v]; !a.j.withinBound(w, got, bound) {
					a.j.failVerification(w, got, "unknown %d at %v in step %d", v, at, a.step)
				}
			}
		})
	}
}

// face is the data exchanged in one direction: the outermost points of every cell but the
// last, two deep if possible.
type face struct {
	axis, d  int
	to, from int
	send     []edgePoint // indexes within this rank's cells
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
	for way := range a.faces {
		f := &a.faces[way]
		f.axis, f.d, f.tag = way/2, 1-2*(way%2), 100+way
		f.to, f.from = a.neighbour(f.axis, f.d), a.neighbour(f.axis, -f.d)
		for s := range a.q {
			c := a.slice(f.axis, s)
			if next := s + f.d; next >= 0 && next < a.q {
				c.each(func(at [3]int, i int) {
					inward := c.from[f.axis] + c.n[f.axis] - 1 - at[f.axis]
					if f.d < 0 {
						inward = at[f.axis] - c.from[f.axis]
					}
					if inward < faceDepth {
						f.send = append(f.send, edgePoint{c, i})
					}
				})
			}
		}
		for s := range a.q {
			// The face for the cell in slice s comes from the cell before it, which has the
			// same coordinates on the other axes.
			before := s - f.d
			if before < 0 || before >= a.q {
				continue
			}
			f.recv = append(f.recv, a.facePoints(f, a.slice(f.axis, s), before)...)
		}
		f.out, f.in = make([]byte, 8*adiVars*len(f.send)), make([]byte, 8*adiVars*len(f.recv))
	}
}

// facePoints returns the points of the neighbouring cell in another slice.
func (a *adi) facePoints(f *face, c *adiCell, slice int) (points [][3]int) {
	other := adiCell{from: c.from, n: c.n}
	other.from[f.axis] = part(a.side, a.q, slice)
	other.n[f.axis] = part(a.side, a.q, slice+1) - other.from[f.axis]
	other.each(func(at [3]int, _ int) {
		inward := other.from[f.axis] + other.n[f.axis] - 1 - at[f.axis]
		if f.d < 0 {
			inward = at[f.axis] - other.from[f.axis]
		}
		if inward < faceDepth {
			points = append(points, at)
		}
	})
	return points
}

// exchangeFaces exchanges all six faces and checks them: receives first, then sends, then a
// wait for all.
func (a *adi) exchangeFaces(want func(at [3]int) [adiVars]float64, bound float64) {
	rs := make([]*mpi.Request, 0, 2*len(a.faces))
	for i := range a.faces {
		f := &a.faces[i]
		rs = append(rs, a.j.Irecv(f.in, f.from, f.tag))
	}
	for i := range a.faces {
		f := &a.faces[i]
		for k, p := range f.send {
			putFloats(f.out[8*adiVars*k:], p.cell.u[adiVars*p.i:][:adiVars])
		}
		a.j.digestSent(f.to, f.out)
		rs = append(rs, a.j.Isend(f.out, f.to, f.tag))
	}
	a.j.waitAll(rs...)
	for i := range a.faces {
		f := &a.faces[i]
		a.j.digestReceived(f.from, f.in)
		for k, at := range f.recv {
			for v, w := range want(at) {
				if got := getFloat(f.in[8*(adiVars*k+v):]); !a.j.withinBound(w, got, bound) {
					a.j.failVerification(w, got, "unknown %d at %v on a face from rank %d in step %d", v, at, f.from, a.step)
				}
			}
		}
	}
}
