package work

// adiCell is one cell of a rank.
type adiCell struct {
	place      [3]int    // index among all cells
	from, n    [3]int    // first point, and number of points
	u          []float64 // unknowns of points, along x, y, z
	eliminated []float64 // results of elimination
}

// line is a line of a cell along an axis: its first point, the distance between points and
// their number.
type line struct {
	axis, first, stride, n int
	at                     [3]int // of the first point, in the whole grid
}

// extended returns a box of the cell's size, extended along some axes within the grid.
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

// each visits the points of a cell, with their indexes.
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

// lines visits the lines of a cell along an axis.
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
