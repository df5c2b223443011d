package work

import (
	"fmt"
	"math"
)

// multigrid is NPB's MG benchmark: it solves Poisson's equation on a periodic grid by V-cycles. Each
// rank has a box of the grid, and exchanges faces with its six neighbours after every operation.
// Faces shrink by four from level to level: messages have all sizes (Sur 2006, Fig. 5).
// All ranks gather a grid that is too coarse to divide, which adds partners (Table 1: nine).
func multigrid(j *job) {
	size := mgSizes[j.p.Class]
	m := newMG(j, newTorus(box(j.Size()), j.Rank()), size.side, j.p.Seed)
	m.solve(j.setIterations(size.cycles))
	m.check(size.side)
}

var mgSizes = map[Class]mgSize{
	ClassT: {side: 16, cycles: 2},
	ClassS: {side: 32, cycles: 4},
	ClassW: {side: 128, cycles: 4},
	ClassA: {side: 256, cycles: 4},
	ClassB: {side: 256, cycles: 20},
}

// mgUnfitReason returns why a number of ranks cannot share the problem of a class; "" if it can.
func mgUnfitReason(c Class, ranks int) string {
	boxes := box(ranks)[0]         // along the axis with most
	if 4*boxes > mgSizes[c].side { // a box of four points can be halved once
		return fmt.Sprintf("%d boxes along a side of %d points, of which each needs four", boxes, mgSizes[c].side)
	}
	return ""
}

type mgSize struct{ side, cycles int }

// mg is a rank's part of the solution, or all of it without a job.
type mg struct {
	j      *job
	torus  torus
	levels []*mgLevel // the finest first
	coarse *mg        // of all ranks together, below the last level
	v      []float64  // the right-hand side; nil for a coarse solver, whose finest level has it in r
	norms  []float64  // of the residual, before and after every cycle
}

// mgContraction bounds the factor by which a cycle reduces the residual; the first cycles
// reduce it far more.
const mgContraction = 0.8

// newMG returns a rank's part of the problem on a grid with side points on each side.
func newMG(j *job, t torus, side int, seed uint64) *mg {
	m := &mg{j: j, torus: t}
	m.addLevels(side)
	m.v = m.levels[0].field()
	m.setRightSide(seed)
	return m
}

// addLevels creates a level of each size that boxes can have. If a box becomes too small to halve,
// m.coarse has the remaining levels, with the whole grid on every rank.
func (m *mg) addLevels(side int) {
	for {
		l := newMGLevel(side, m.torus)
		m.levels = append(m.levels, l)
		if side == 2 {
			return
		}
		for axis, n := range l.n {
			if m.torus.sides[axis] > 1 && n < 4 { // the next level would have less than two points
				m.coarse = &mg{torus: newTorus([3]int{1, 1, 1}, 0)}
				m.coarse.addLevels(side)
				return
			}
		}
		side /= 2
	}
}

// setRightSide puts ten positive and ten negative charges at random points, as NPB's MG does. The
// coordinates are 20 bits each of a random number.
func (m *mg) setRightSide(seed uint64) {
	l := m.levels[0]
	for i := range uint64(20) {
		draw := key(seed, i)
		var at [3]int // in the box
		inside := true
		for axis := range at {
			at[axis] = int(draw>>(20*axis))%l.side - l.from[axis]
			inside = inside && at[axis] >= 0 && at[axis] < l.n[axis]
		}
		if inside {
			m.v[l.index(at[0]+1, at[1]+1, at[2]+1)] += 1 - 2*float64(i%2)
		}
	}
}

// solve runs the cycles. m.j is nil if one rank solves the whole grid for a comparison.
func (m *mg) solve(cycles int) {
	top := m.levels[0]
	copy(top.r, m.v)
	m.exchange(top, top.r)
	m.recordNorm()
	if m.j != nil {
		m.j.start()
	}
	for range cycles {
		m.cycle(0)
		m.recordNorm()
	}
	if m.j != nil {
		m.j.stop()
		m.j.addFigure("residual", m.norms[cycles], "")
	}
}

// recordNorm records the norm of the residual.
func (m *mg) recordNorm() {
	l, sum := m.levels[0], 0.0
	l.each(func(at int) { sum += l.r[at] * l.r[at] })
	if m.j != nil {
		sum = m.j.sumAll(sum)
	}
	m.norms = append(m.norms, math.Sqrt(sum))
}

// cycle improves the solution u of level i by its residual r. Below the finest level, and on all
// levels of m.coarse, which has no v, u starts at 0.
func (m *mg) cycle(i int) {
	l, finest := m.levels[i], i == 0 && m.v != nil
	if m.j != nil {
		m.j.spendComputePart(len(m.levels))
	}
	if !finest {
		clear(l.u)
	}
	if i == len(m.levels)-1 {
		if m.coarse != nil {
			m.solveCoarse(l)
		} else {
			m.smooth(l)
		}
		return
	}
	next := m.levels[i+1]
	next.restrict(l)
	m.exchange(next, next.r)
	m.cycle(i + 1)
	l.interpolate(next)
	m.exchange(l, l.u)
	right := l.r
	if finest {
		right = m.v
	}
	m.residual(l, right)
	m.smooth(l)
	if finest {
		m.residual(l, right)
	}
}

// residual computes the residual of u of a level into r, and exchanges its faces.
func (m *mg) residual(l *mgLevel, right []float64) {
	l.each(func(at int) { l.r[at] = right[at] - l.applyStencil(&mgOperator, l.u, at) })
	m.exchange(l, l.r)
}

// smooth applies the smoother to the residual r of a level, adds the result to the solution u, and
// exchanges the faces of u.
func (m *mg) smooth(l *mgLevel) {
	l.each(func(at int) { l.u[at] += l.applyStencil(&mgSmoother, l.r, at) })
	m.exchange(l, l.u)
}

// check checks that each cycle reduces the residual and, for small grids, compares every point with
// cycles by one rank, to the bit: a cycle does not depend on the division of the grid.
func (m *mg) check(side int) {
	j := m.j
	for i, n := range m.norms[1:] {
		j.checkSmall(n, m.norms[i]*mgContraction, "residual after cycle %d", i)
	}
	if side > mgReference {
		return
	}
	whole := newMG(nil, newTorus([3]int{1, 1, 1}, 0), side, j.p.Seed)
	whole.solve(j.iterations)
	l, w := m.levels[0], whole.levels[0]
	l.each(func(at int) {
		x, y, z := l.globalPoint(at)
		if want, got := w.u[w.index(x+1, y+1, z+1)], l.u[at]; !j.withinBound(want, got, exactly) {
			j.failVerification(want, got, "solution at (%d, %d, %d)", x, y, z)
		}
	})
}

// mgReference is the largest side up to which each rank also solves the whole problem.
const mgReference = 32
