package work

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// adi is a rank's part of a solution by lines along each axis in turn, as NPB's BT and
// SP have it: the grid is divided into q × q × q cells for q × q ranks, of which each
// has q, one in every slice along every axis (multipartition). A sweep along an axis
// goes from slice to slice; in each slice every rank has one cell to work on, and what
// it needs comes from the same neighbour every time.
//
// A step's right side is the product of the three axes' operators and a known solution
// that is other in every step, so that each step is checked in full: every unknown, and
// every number on the faces that neighbours exchange after it.
type adi struct {
	j      *job // nil of a whole grid
	solver lineSolver
	drawn  uint64 // what coefficients follow from
	seed   uint64 // and the step's solution
	side   int
	q      int
	i, k   int // place on the square of ranks
	cells  []*adiCell
	step   int

	forwardIn, forwardOut []float64
	in, out               []byte
	pending               *mpi.Request // the last send
	faces                 [6]face
}

// adiVars is how many unknowns a point has.
const adiVars = 5

// lineSolver solves the lines of a cell along an axis.
type lineSolver interface {
	// apply is the operator of an axis on a field, at a point: of what is no farther than
	// faceDepth, and within the grid.
	apply(a *adi, axis int, at [3]int, field func(at [3]int) [adiVars]float64) [adiVars]float64
	// forwardSize is how many numbers a line hands on when it is eliminated, backSize
	// when it is solved.
	forwardSize() int
	backSize() int
	// eliminate takes what the line's last cell has handed on (nothing for its first)
	// and writes what this one does.
	eliminate(a *adi, c *adiCell, l line, before, after []float64)
	// solve does so from the other end.
	solve(a *adi, c *adiCell, l line, before, after []float64)
	// scratch is how many numbers elimination leaves at a point.
	scratch() int
}

func newADI(seed uint64, side, ranks, rank int, s lineSolver) *adi {
	a := &adi{solver: s, drawn: seed, side: side, q: isqrt(ranks)}
	a.i, a.k = rank%a.q, rank/a.q
	for c := range a.q {
		cell := &adiCell{place: [3]int{(a.i + c) % a.q, (a.k - c + a.q) % a.q, c}}
		points := 1
		for axis, at := range cell.place {
			cell.from[axis] = part(side, a.q, at)
			cell.n[axis] = part(side, a.q, at+1) - cell.from[axis]
			points *= cell.n[axis]
		}
		cell.kept = make([]float64, s.scratch()*points)
		a.cells = append(a.cells, cell)
	}
	widest := (side + a.q - 1) / a.q
	n := widest * widest * max(s.forwardSize(), s.backSize())
	a.forwardIn, a.forwardOut = make([]float64, n), make([]float64, n)
	a.in, a.out = make([]byte, 8*n), make([]byte, 8*n)
	return a
}

// beside is the rank that has the next cells along an axis.
func (a *adi) beside(axis, d int) int {
	i, k := a.i, a.k
	switch axis {
	case 0:
		i += d
	case 1:
		k += d
	default:
		i, k = i-d, k+d
	}
	return (i+a.q)%a.q + (k+a.q)%a.q*a.q
}

// run takes some steps.
func (a *adi) run(steps int) error {
	for step := range steps {
		a.begin(step)
		if err := a.j.start(); err != nil {
			return err
		}
		if err := a.solve(); err != nil {
			return err
		}
		a.j.stop()
		want, bound, err := a.reference()
		if err != nil {
			return err
		}
		if err := a.check(want, bound); err != nil {
			return err
		}
		if err := a.exchangeFaces(want, bound); err != nil {
			return err
		}
	}
	return nil
}

// begin makes a step's right side.
func (a *adi) begin(step int) {
	a.step, a.seed = step, key(a.drawn, uint64(step))
	for _, c := range a.cells {
		a.rightSide(c)
	}
}

// solve leaves its solution.
func (a *adi) solve() error {
	for axis := range 3 {
		if err := a.sweep(axis, false); err != nil {
			return fmt.Errorf("step %d, axis %d: %w", a.step, axis, err)
		}
		if err := a.sweep(axis, true); err != nil {
			return fmt.Errorf("step %d, axis %d, back: %w", a.step, axis, err)
		}
	}
	return nil
}

// wanted is the solution of this step; there is none beyond the grid.
func (a *adi) wanted(at [3]int) (u [adiVars]float64) {
	for _, p := range at {
		if p < 0 || p >= a.side {
			return u
		}
	}
	k := key(a.seed, uint64((at[0]*a.side+at[1])*a.side+at[2]))
	for v := range u {
		u[v] = unit(mix(k + uint64(v)))
	}
	return u
}

// chance is a coefficient of a point, between -1 and 1.
func (a *adi) chance(axis int, at [3]int) float64 {
	return unit(key(a.drawn, uint64(axis), uint64((at[0]*a.side+at[1])*a.side+at[2])))
}

// rightSide applies the operators of all axes to the solution, one after the other: each
// needs what the one before gives within its reach beyond the cell.
func (a *adi) rightSide(c *adiCell) {
	alongZ := a.applied(2, c.grown(a.side, 0, 1), a.wanted)
	alongY := a.applied(1, c.grown(a.side, 0), alongZ.at)
	c.u = a.applied(0, c.grown(a.side), alongY.at).u
}

// applied is the operator of an axis on a field, at all points of a box.
func (a *adi) applied(axis int, box *adiCell, field func([3]int) [adiVars]float64) *adiCell {
	box.each(func(at [3]int, i int) {
		y := a.solver.apply(a, axis, at, field)
		copy(box.u[adiVars*i:], y[:])
	})
	return box
}

// slice is the rank's cell in a slice along an axis.
func (a *adi) slice(axis, s int) *adiCell {
	for _, c := range a.cells {
		if c.place[axis] == s {
			return c
		}
	}
	panic("work: a rank has a cell in every slice")
}

// sweep eliminates along an axis, or solves back along it. The order is that of
// Thesis Fig. 4.18: the receive is posted, work is done that does not need it, then the
// last send and the receive are waited for.
func (a *adi) sweep(axis int, back bool) error {
	d, size, handle := 1, a.solver.forwardSize(), a.solver.eliminate
	if back {
		d, size, handle = -1, a.solver.backSize(), a.solver.solve
	}
	from, to, tag := a.beside(axis, -d), a.beside(axis, d), 1+2*axis
	if back {
		tag++
	}
	for n := range a.q {
		s := n
		if back {
			s = a.q - 1 - n
		}
		c := a.slice(axis, s)
		lines := c.n[(axis+1)%3] * c.n[(axis+2)%3]
		var in *mpi.Request
		var err error
		if n > 0 {
			if in, err = a.j.Irecv(a.in[:8*size*lines], from, tag); err != nil {
				return err
			}
		}
		if a.j != nil {
			a.j.compute(6 * a.q)
		}
		if err := a.sendDone(); err != nil {
			return err
		}
		if in != nil {
			if _, err := a.j.wait(in); err != nil {
				return err
			}
			a.j.came(from, a.in[:8*size*lines])
			getFloats(a.forwardIn[:size*lines], a.in)
		}
		c.lines(axis, func(i int, l line) {
			var before []float64
			if n > 0 {
				before = a.forwardIn[size*i:][:size]
			}
			handle(a, c, l, before, a.forwardOut[size*i:][:size])
		})
		if n < a.q-1 {
			putFloats(a.out, a.forwardOut[:size*lines])
			a.j.left(to, a.out[:8*size*lines])
			if a.pending, err = a.j.Isend(a.out[:8*size*lines], to, tag); err != nil {
				return err
			}
		}
	}
	return a.sendDone()
}

func (a *adi) sendDone() error {
	if a.pending == nil {
		return nil
	}
	_, err := a.j.wait(a.pending)
	a.pending = nil
	return err
}
