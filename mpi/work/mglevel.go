package work

import (
	"github.com/fabrictest/fabrictest/mpi"
)

// mgLevel is a rank's box of a grid, with a ghost point on every side.
type mgLevel struct {
	side    int
	from, n [3]int
	u, r    []float64
}

// newMGLevel returns the box of the rank at the position of t, in a grid of side³ points.
func newMGLevel(side int, t torus) *mgLevel {
	l := &mgLevel{side: side}
	for axis, k := range t.sides {
		l.n[axis] = side / k
		l.from[axis] = t.at[axis] * l.n[axis]
	}
	l.u, l.r = l.field(), l.field()
	return l
}

// field returns a field of zeros for the points of the box and its ghost points.
func (l *mgLevel) field() []float64 {
	return make([]float64, (l.n[0]+2)*(l.n[1]+2)*(l.n[2]+2))
}

// index returns the index in a field of a point of the box. The coordinates of own points start at
// 1; those of ghost points are 0 and n+1.
func (l *mgLevel) index(x, y, z int) int { return (z*(l.n[1]+2)+y)*(l.n[0]+2) + x }

// globalPoint returns the coordinates in the whole grid of the point whose index in the fields of
// this box is at.
func (l *mgLevel) globalPoint(at int) (x, y, z int) {
	x, at = at%(l.n[0]+2), at/(l.n[0]+2)
	y, z = at%(l.n[1]+2), at/(l.n[1]+2)
	return l.from[0] + x - 1, l.from[1] + y - 1, l.from[2] + z - 1
}

// each calls do for the own points of the box, with their indexes in the fields.
func (l *mgLevel) each(do func(at int)) {
	for z := 1; z <= l.n[2]; z++ {
		for y := 1; y <= l.n[1]; y++ {
			first := l.index(1, y, z)
			for at := first; at < first+l.n[0]; at++ {
				do(at)
			}
		}
	}
}

// stencil has weights for a point, and its neighbours across a face, an edge and a corner.
type stencil [4]float64

// The stencils of NPB's MG: the operator, the smoother of the smaller classes, and the restriction.
var (
	mgOperator = stencil{-8.0 / 3, 0, 1.0 / 6, 1.0 / 12}
	mgSmoother = stencil{-3.0 / 8, 1.0 / 32, -1.0 / 64, 0}
	mgRestrict = stencil{0.5, 0.25, 0.125, 0.0625}
)

// applyStencil applies a stencil to a field at a point.
func (l *mgLevel) applyStencil(s *stencil, f []float64, at int) float64 {
	dy := l.n[0] + 2
	dz := dy * (l.n[1] + 2)
	faces := f[at-1] + f[at+1] + f[at-dy] + f[at+dy] + f[at-dz] + f[at+dz]
	edges := f[at-dy-1] + f[at-dy+1] + f[at+dy-1] + f[at+dy+1] +
		f[at-dz-1] + f[at-dz+1] + f[at+dz-1] + f[at+dz+1] +
		f[at-dz-dy] + f[at-dz+dy] + f[at+dz-dy] + f[at+dz+dy]
	corners := f[at-dz-dy-1] + f[at-dz-dy+1] + f[at-dz+dy-1] + f[at-dz+dy+1] +
		f[at+dz-dy-1] + f[at+dz-dy+1] + f[at+dz+dy-1] + f[at+dz+dy+1]
	return s[0]*f[at] + s[1]*faces + s[2]*edges + s[3]*corners
}

// restrict computes r from the next finer level, in which a point has twice its coordinates (index
// 1 is coordinate 0).
func (l *mgLevel) restrict(fine *mgLevel) {
	for z := 1; z <= l.n[2]; z++ {
		for y := 1; y <= l.n[1]; y++ {
			for x := 1; x <= l.n[0]; x++ {
				l.r[l.index(x, y, z)] = fine.applyStencil(&mgRestrict, fine.r, fine.index(2*x-1, 2*y-1, 2*z-1))
			}
		}
	}
}

// interpolate adds u of the next coarser level: points in between have the mean of those around.
func (l *mgLevel) interpolate(coarse *mgLevel) {
	for z := 1; z <= l.n[2]; z++ {
		for y := 1; y <= l.n[1]; y++ {
			for x := 1; x <= l.n[0]; x++ {
				sum, n := 0.0, 0
				for cz := (z + 1) / 2; cz <= z/2+1; cz++ {
					for cy := (y + 1) / 2; cy <= y/2+1; cy++ {
						for cx := (x + 1) / 2; cx <= x/2+1; cx++ {
							sum += coarse.u[coarse.index(cx, cy, cz)]
							n++
						}
					}
				}
				l.u[l.index(x, y, z)] += sum / float64(n)
			}
		}
	}
}

// exchange fills the ghost points from the neighbours, axis by axis, which includes edges and
// corners. On an axis with one rank, the box is its own neighbour, because the grid is periodic.
func (m *mg) exchange(l *mgLevel, f []float64) {
	for axis, ranks := range m.torus.sides {
		if ranks == 1 {
			l.copyFace(f, axis, 0, l.n[axis])
			l.copyFace(f, axis, l.n[axis]+1, 1)
			continue
		}
		m.exchangeAxis(l, f, axis)
	}
}

// mgTag is the tag of a face sent in the direction of an axis (up is 1) or against it (up is 0).
func mgTag(axis, up int) int { return 2*axis + up }

// exchangeAxis sends the own points at both ends of an axis to the neighbours there, and receives
// theirs as ghost points.
func (m *mg) exchangeAxis(l *mgLevel, f []float64, axis int) {
	j, n := m.j, 8*(l.n[(axis+1)%3]+2)*(l.n[(axis+2)%3]+2) // bytes of a face, with ghost points
	down, up := m.torus.neighbour(axis, -1), m.torus.neighbour(axis, 1)
	out, in := make([]byte, 2*n), make([]byte, 2*n)
	rs := [2]*mpi.Request{j.Irecv(in[:n], down, mgTag(axis, 1)), j.Irecv(in[n:], up, mgTag(axis, 0))}
	send := func(buf []byte, place, to, tag int) {
		rest := buf
		l.onFace(axis, place, func(at int) {
			putFloats(rest, f[at:at+1])
			rest = rest[8:]
		})
		j.sendWithDigest(buf, to, tag)
	}
	send(out[:n], l.n[axis], up, mgTag(axis, 1))
	send(out[n:], 1, down, mgTag(axis, 0))
	for i, from := range []int{down, up} {
		j.wait(rs[i])
		face := in[i*n:][:n]
		j.digestReceived(from, face)
		ghost := i * (l.n[axis] + 1) // ghost points are below point 1, and above point n
		l.onFace(axis, ghost, func(at int) {
			f[at] = getFloat(face)
			face = face[8:]
		})
	}
}

// onFace calls do for the points whose coordinate on an axis is place, ghost points included, with
// their indexes in the fields.
func (l *mgLevel) onFace(axis, place int, do func(at int)) {
	strides := [3]int{1, l.n[0] + 2, (l.n[0] + 2) * (l.n[1] + 2)}
	a, b := (axis+1)%3, (axis+2)%3
	for q := range l.n[b] + 2 {
		for p := range l.n[a] + 2 {
			do(place*strides[axis] + p*strides[a] + q*strides[b])
		}
	}
}

// copyFace copies the points at one coordinate of an axis to another.
func (l *mgLevel) copyFace(f []float64, axis, to, from int) {
	strides := [3]int{1, l.n[0] + 2, (l.n[0] + 2) * (l.n[1] + 2)}
	l.onFace(axis, to, func(at int) { f[at] = f[at+(from-to)*strides[axis]] })
}

// solveCoarse continues a cycle on the coarser levels, which every rank solves for the whole grid:
// it gathers the residuals of all boxes of level l, and takes this rank's part of the solution.
func (m *mg) solveCoarse(l *mgLevel) {
	boxBytes := 8 * l.n[0] * l.n[1] * l.n[2]
	mine, all := make([]byte, 0, boxBytes), make([]byte, boxBytes*m.j.Size())
	l.each(func(at int) {
		mine = mine[:len(mine)+8]
		putFloats(mine[len(mine)-8:], l.r[at:at+1])
	})
	m.j.Allgather(mine, all)
	whole := m.coarse.levels[0]
	for rank := range m.j.Size() {
		box := newMGLevel(l.side, newTorus(m.torus.sides, rank))
		box.each(func(at int) {
			x, y, z := box.globalPoint(at)
			whole.r[whole.index(x+1, y+1, z+1)] = getFloat(all)
			all = all[8:]
		})
	}
	m.coarse.exchange(whole, whole.r)
	m.coarse.cycle(0)
	l.each(func(at int) {
		x, y, z := l.globalPoint(at)
		l.u[at] = whole.u[whole.index(x+1, y+1, z+1)]
	})
	m.exchange(l, l.u)
}
