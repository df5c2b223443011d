package work

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// adiBound is how far an unknown may be from the solution: operators are well within
// what can be solved without loss. adiReference is up to which side every rank solves the
// whole grid too.
const (
	adiBound     = 1e-9
	adiReference = 24
)

// reference returns what the unknowns of points must be, and how exactly: the step's
// solution, or, unless the grid is too large for that, what lines that were not divided
// give. These are the same to the bit, for a line's elimination does not depend on where
// it is handed on.
func (a *adi) reference() (want func(at [3]int) [adiVars]float64, bound float64, err error) {
	if a.side > adiReference {
		return a.wanted, adiBound, nil
	}
	whole := newADI(a.drawn, a.side, 1, 0, a.solver)
	whole.begin(a.step)
	if err := whole.solve(); err != nil {
		return nil, 0, err
	}
	c := whole.cells[0]
	c.each(func(at [3]int, i int) {
		for v, w := range a.wanted(at) {
			if got := c.u[adiVars*i+v]; err == nil && !a.j.alike(w, got, adiBound) {
				err = a.j.wrong(w, got, "unknown %d at %v in step %d of the reference", v, at, a.step)
			}
		}
	})
	return c.at, 0, err
}

// check compares every unknown.
func (a *adi) check(want func(at [3]int) [adiVars]float64, bound float64) error {
	var err error
	for _, c := range a.cells {
		c.each(func(at [3]int, i int) {
			for v, w := range want(at) {
				if got := c.u[adiVars*i+v]; err == nil && !a.j.alike(w, got, bound) {
					err = a.j.wrong(w, got, "unknown %d at %v in step %d", v, at, a.step)
				}
			}
		})
	}
	return err
}

// face is what is exchanged one way: of every cell but those at the end, the outermost
// points, two deep, as far as there are two.
type face struct {
	axis, d  int
	to, from int
	send     []edgePoint // places within this rank's cells
	recv     [][3]int    // points of the whole grid that come
	out, in  []byte
	tag      int
}

// edgePoint is a point of a cell.
type edgePoint struct {
	cell *adiCell
	i    int
}

const faceDepth = 2

// makeFaces works out who gets what. Both sides go through slices in ascending order,
// the sender through those that have a next, the receiver through those that have one
// before, and through points in the order of the grid: so they correspond one to one.
func (a *adi) makeFaces() {
	for way := range a.faces {
		f := &a.faces[way]
		f.axis, f.d, f.tag = way/2, 1-2*(way%2), 100+way
		f.to, f.from = a.beside(f.axis, f.d), a.beside(f.axis, -f.d)
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
			// What comes for the cell in slice s is of that before it, whose points
			// beside the axis are this cell's.
			before := s - f.d
			if before < 0 || before >= a.q {
				continue
			}
			f.recv = append(f.recv, a.facing(f, a.slice(f.axis, s), before)...)
		}
		f.out, f.in = make([]byte, 8*adiVars*len(f.send)), make([]byte, 8*adiVars*len(f.recv))
	}
}

// facing are the points of the neighbouring cell in another slice that a face brings.
func (a *adi) facing(f *face, c *adiCell, slice int) (points [][3]int) {
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

// exchangeFaces sends all six faces and checks those that come: receives first, then
// sends, then a wait for all.
func (a *adi) exchangeFaces(want func(at [3]int) [adiVars]float64, bound float64) error {
	var rs []*mpi.Request
	for i := range a.faces {
		f := &a.faces[i]
		r, err := a.j.Irecv(f.in, f.from, f.tag)
		if err != nil {
			return err
		}
		rs = append(rs, r)
	}
	for i := range a.faces {
		f := &a.faces[i]
		for k, p := range f.send {
			putFloats(f.out[8*adiVars*k:], p.cell.u[adiVars*p.i:][:adiVars])
		}
		a.j.left(f.to, f.out)
		r, err := a.j.Isend(f.out, f.to, f.tag)
		if err != nil {
			return err
		}
		rs = append(rs, r)
	}
	if err := a.j.waitAll(rs...); err != nil {
		return fmt.Errorf("faces of step %d: %w", a.step, err)
	}
	for i := range a.faces {
		f := &a.faces[i]
		a.j.came(f.from, f.in)
		for k, at := range f.recv {
			for v, w := range want(at) {
				if got := getFloat(f.in[8*(adiVars*k+v):]); !a.j.alike(w, got, bound) {
					return a.j.wrong(w, got, "unknown %d at %v on a face from rank %d in step %d", v, at, f.from, a.step)
				}
			}
		}
	}
	return nil
}
