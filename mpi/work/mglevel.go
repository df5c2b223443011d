package work

// mgLevel is a rank's box of a grid, with a ghost point on every side.
type mgLevel struct {
	side    int
	from, n [3]int
	u, r    []float64
}

// newMGLevel returns the box of the rank at the position of t, in a grid with side points on each side.
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

// index is the index of a point of the box; own points start at 1.
func (l *mgLevel) index(x, y, z int) int { return (z*(l.n[1]+2)+y)*(l.n[0]+2) + x }

// globalPoint returns the coordinates of an index in the whole grid.
func (l *mgLevel) globalPoint(at int) (x, y, z int) {
	x, at = at%(l.n[0]+2), at/(l.n[0]+2)
	y, z = at%(l.n[1]+2), at/(l.n[1]+2)
	return l.from[0] + x - 1, l.from[1] + y - 1, l.from[2] + z - 1
}

// has reports whether the box has a point of the whole grid.
func (l *mgLevel) has(at [3]int) bool {
	for axis, p := range at {
		if p < l.from[axis] || p >= l.from[axis]+l.n[axis] {
			return false
		}
	}
	return true
}

// each visits the own points of the box.
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

// stencil has weights for a point, and for its neighbours across a face, an edge and a
// corner.
type stencil [4]float64

// The stencils of NPB's MG: the operator, and the smoother of the smaller classes.
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

// residual computes the residual of u into r.
func (l *mgLevel) residual(right []float64) {
	l.each(func(at int) { l.r[at] = right[at] - l.applyStencil(&mgOperator, l.u, at) })
}

// smooth applies the smoother to r and adds the result to u.
func (l *mgLevel) smooth() {
	l.each(func(at int) { l.u[at] += l.applyStencil(&mgSmoother, l.r, at) })
}

// restrict computes r from the next finer level: a point is there at twice its coordinates.
func (l *mgLevel) restrict(fine *mgLevel) {
	for z := 1; z <= l.n[2]; z++ {
		for y := 1; y <= l.n[1]; y++ {
			for x := 1; x <= l.n[0]; x++ {
				l.r[l.index(x, y, z)] = fine.applyStencil(&mgRestrict, fine.r, fine.index(2*x-1, 2*y-1, 2*z-1))
			}
		}
	}
}

// interpolate adds u of the next coarser level: points between its points have the mean of
// those around them.
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
