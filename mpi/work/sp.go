package work

// scalarPentadiagonal solves lines of five diagonals on a multipartition, as NPB's SP does.
// Unknowns are not coupled to each other; three have the same factors and two their own. Each line
// passes on factors and right-hand sides of two points (22 numbers), and unknowns of two points on
// the way back (10): smaller messages than BT's, and more of them per work (Sur 2006 Table 1).
func scalarPentadiagonal(j *job) { runADI(j, &pentaSolver) }

var pentaSolver = lineSolver{
	apply: applyDiagonals, eliminate: eliminateDiagonals, solve: solveDiagonals,
	forwardSize: 2 * rowSize, backSize: 2 * adiVars, scratch: 2 * pentaSets,
}

// pentaSets is the number of sets of factors.
const pentaSets = 3

// factorSet is the index of the set of factors of unknown v: the first three share set 0.
func factorSet(v int) int { return max(0, v-2) }

// pentaOuter is the coefficient of the point two before, constant for all points.
const pentaOuter = 0.2

// coefficients are the coefficients of the two points before a point, of the point itself, and of
// the two points after it, for a set of factors.
func coefficients(a *adi, axis int, at [3]int, set int) [5]float64 {
	return [5]float64{pentaOuter, -1, 5 + a.coefficient(axis, at) + 0.3*float64(set), -1, 0.3}
}

// applyDiagonals implements lineSolver.apply: it returns the left-hand side of the equations of a
// point, a sum over the point and the two before and after it along the axis, with the values of
// field. Unknown v has the set of coefficients factorSet(v).
func applyDiagonals(a *adi, axis int, at [3]int, field func([3]int) [adiVars]float64) (sum [adiVars]float64) {
	var sets [pentaSets][5]float64
	for i := range sets {
		sets[i] = coefficients(a, axis, at, i)
	}
	for d := range 5 {
		p := at
		p[axis] += d - 2
		if p[axis] < 0 || p[axis] >= a.side {
			continue
		}
		f := field(p)
		for v := range sum {
			sum[v] += sets[factorSet(v)][d] * f[v]
		}
	}
	return sum
}

// row is the equation of a point after elimination: its unknown, plus factors times the
// next two, is the right-hand side.
type row struct {
	first, second [pentaSets]float64 // factors of the next point and of the one after it
	right         [adiVars]float64
}

const rowSize = 2*pentaSets + adiVars

// load reads a row, the equation of a point, from numbers, and store writes it.
func (r *row) load(xs []float64) {
	copy(r.first[:], xs)
	copy(r.second[:], xs[pentaSets:])
	copy(r.right[:], xs[2*pentaSets:])
}

func (r *row) store(xs []float64) {
	copy(xs, r.first[:])
	copy(xs[pentaSets:], r.second[:])
	copy(xs[2*pentaSets:], r.right[:])
}

// eliminateDiagonals implements lineSolver.eliminate, the forward elimination along a line of a
// cell. It removes the coupling of each point to the two before it. received has the last two rows
// of the previous cell, nil if there is none, and passed gets those of this one. Points before the
// start of the line are 0.
func eliminateDiagonals(a *adi, c *adiCell, l line, received, passed []float64) {
	var last [2]row // the last two rows
	if received != nil {
		last[0].load(received)
		last[1].load(received[rowSize:])
	}
	at := l.at
	for i := range l.n {
		p := l.first + i*l.stride
		here := c.unknowns(p)
		var next row
		var coupling, diagonal [pentaSets]float64
		for set := range pentaSets {
			k := coefficients(a, l.axis, at, set)
			// Substitute the row before the last, then the last. k[0] is pentaOuter in all sets.
			coupling[set] = k[1] - k[0]*last[0].first[set]
			diagonal[set] = k[2] - k[0]*last[0].second[set] - coupling[set]*last[1].first[set]
			next.first[set] = (k[3] - coupling[set]*last[1].second[set]) / diagonal[set]
			next.second[set] = k[4] / diagonal[set]
		}
		for v := range here {
			set := factorSet(v)
			next.right[v] = (here[v] - pentaOuter*last[0].right[v] - coupling[set]*last[1].right[v]) / diagonal[set]
			here[v] = next.right[v]
		}
		kept := c.eliminated[2*pentaSets*p:]
		copy(kept, next.first[:])
		copy(kept[pentaSets:], next.second[:])
		last[0], last[1] = last[1], next
		at[l.axis]++
	}
	last[0].store(passed)
	last[1].store(passed[rowSize:])
}

// solveDiagonals implements lineSolver.solve, the back substitution along a line of a cell. From
// each point it subtracts the couplings times the next two points, whose values are known.
// received has the first two points of the line in the next cell, nil if there is none; passed gets
// those of this cell. Points after the end of the line are 0.
func solveDiagonals(_ *adi, c *adiCell, l line, received, passed []float64) {
	var known [2][adiVars]float64 // the next two points
	if received != nil {
		copy(known[0][:], received)
		copy(known[1][:], received[adiVars:])
	}
	for i := l.n - 1; i >= 0; i-- {
		p := l.first + i*l.stride
		here, kept := c.unknowns(p), c.eliminated[2*pentaSets*p:]
		for v := range here {
			set := factorSet(v)
			here[v] -= kept[set]*known[0][v] + kept[pentaSets+set]*known[1][v]
		}
		known[1] = known[0]
		copy(known[0][:], here)
	}
	copy(passed, known[0][:])
	copy(passed[adiVars:], known[1][:])
}
