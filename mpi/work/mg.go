package work

import (
	"fmt"
	"math"
)

// multigrid solves Poisson's equation on a periodic grid by V-cycles, as NPB's MG does,
// with its stencils. Ranks have boxes of the grid; after every operation faces are
// exchanged with both neighbours on each axis in turn: two receives posted, two sends,
// two waits. Faces shrink by four from level to level, so that there are messages of
// all sizes (Survey Fig. 5); when boxes have become too small to be divided, the coarse
// grid is brought together by all ranks, which gives each some more partners than its
// six neighbours (Survey Table 1: nine).
func multigrid() *Workload {
	sizes := map[Class]mgSize{
		ClassT: {side: 16, cycles: 2},
		ClassS: {side: 32, cycles: 4},
		ClassW: {side: 128, cycles: 4},
		ClassA: {side: 256, cycles: 4},
	}
	return runner(&Workload{
		Name: "mg", Title: "V-cycles on a periodic grid (NPB MG)", Paper: "Survey §3.2, Table 1; Thesis Table 6.1",
		MinRanks: 1, RankRule: PowerOfTwo,
		unfit: func(c Class, ranks int) string {
			if s := box(ranks); 4*s[0] > sizes[c].side {
				return fmt.Sprintf("%d boxes along a side of %d points, of which each needs four", s[0], sizes[c].side)
			}
			return ""
		},
	}, func(j *job) error {
		size := sizes[j.p.Class]
		m := newMG(j, newTorus(box(j.Size()), j.Rank()), size.side, j.p.Seed)
		if err := m.solve(j.steps(size.cycles)); err != nil {
			return err
		}
		return m.check(size.side)
	})
}

type mgSize struct{ side, cycles int }

// mg is a rank's part of the solution, or, without a job, the whole of it.
type mg struct {
	j      *job
	torus  torus
	levels []*mgLevel // the finest first
	coarse *mg        // of all ranks together, from the size of the last level on
	v      []float64  // the right side; nil of a coarse solver, whose finest level has it in r
	norms  []float64  // of what is left of it, before and after every cycle
	sent   [6]ledger  // by tag
	came   [6]ledger
}

// mgContraction is by how much a cycle reduces what is left, at least; the first ones do
// so by far more.
const mgContraction = 0.8

func newMG(j *job, t torus, side int, seed uint64) *mg {
	m := &mg{j: j, torus: t}
	m.addLevels(side)
	m.v = m.levels[0].field()
	m.rightSide(seed)
	return m
}

// addLevels makes a level of each size that boxes can have.
func (m *mg) addLevels(side int) {
	for {
		l := newMGLevel(side, m.torus)
		m.levels = append(m.levels, l)
		if side == 2 {
			return
		}
		for axis, n := range l.n {
			if m.torus.sides[axis] > 1 && n < 4 { // the next would be of less than two
				m.coarse = &mg{torus: newTorus([3]int{1, 1, 1}, 0)}
				m.coarse.addLevels(side)
				return
			}
		}
		side /= 2
	}
}

// rightSide puts charges of one sign and the other at ten places each, as the model
// does: their sum is nothing.
func (m *mg) rightSide(seed uint64) {
	l := m.levels[0]
	for i := range uint64(20) {
		draw := key(seed, i)
		var at [3]int
		for axis := range at {
			at[axis] = int(draw>>(20*axis)) % l.side
		}
		if l.has(at) {
			m.v[l.index(at[0]-l.from[0]+1, at[1]-l.from[1]+1, at[2]-l.from[2]+1)] += 1 - 2*float64(i%2)
		}
	}
}

// solve runs some cycles.
func (m *mg) solve(cycles int) error {
	top := m.levels[0]
	copy(top.r, m.v)
	if err := m.exchange(top, top.r); err != nil {
		return err
	}
	if err := m.note(); err != nil {
		return err
	}
	if m.j != nil {
		if err := m.j.start(); err != nil {
			return err
		}
	}
	for range cycles {
		if err := m.cycle(0); err != nil {
			return err
		}
		if err := m.note(); err != nil {
			return err
		}
	}
	if m.j != nil {
		m.j.stop()
		m.j.figure("residual", m.norms[cycles], "")
	}
	return nil
}

// note keeps the norm of what is left.
func (m *mg) note() error {
	l, sum := m.levels[0], 0.0
	l.each(func(at int) { sum += l.r[at] * l.r[at] })
	var err error
	if m.j != nil {
		sum, err = m.j.sum(sum)
	}
	m.norms = append(m.norms, math.Sqrt(sum))
	return err
}

// cycle improves the level's u by what is left in its r. On levels below the finest, u
// begins with nothing.
func (m *mg) cycle(i int) error {
	l, finest := m.levels[i], i == 0 && m.v != nil
	if m.j != nil {
		m.j.compute(len(m.levels))
	}
	if !finest {
		clear(l.u)
	}
	if i == len(m.levels)-1 {
		if m.coarse != nil {
			return m.together(l)
		}
		return m.smooth(l)
	}
	next := m.levels[i+1]
	next.restrict(l)
	if err := m.exchange(next, next.r); err != nil {
		return err
	}
	if err := m.cycle(i + 1); err != nil {
		return err
	}
	l.interpolate(next)
	if err := m.exchange(l, l.u); err != nil {
		return err
	}
	right := l.r
	if finest {
		right = m.v
	}
	if err := m.left(l, right); err != nil {
		return err
	}
	if err := m.smooth(l); err != nil || !finest {
		return err
	}
	return m.left(l, right)
}

// left puts into r what u leaves of a right side.
func (m *mg) left(l *mgLevel, right []float64) error {
	l.residual(right)
	return m.exchange(l, l.r)
}

func (m *mg) smooth(l *mgLevel) error {
	l.smooth()
	return m.exchange(l, l.u)
}

// check compares how much every cycle left, what was sent with what came, and, unless
// the grid is too large for that, every point with that of cycles on the whole grid by
// one rank: they are the same to the bit, for nothing in a cycle depends on how the
// grid is divided.
func (m *mg) check(side int) error {
	j := m.j
	for i, n := range m.norms[1:] {
		if !j.alike(0, n, m.norms[i]*mgContraction) {
			return j.wrong("less than "+formatFloat(m.norms[i]*mgContraction), n, "what cycle %d left", i)
		}
	}
	if err := m.compareLedgers(); err != nil || side > mgReference {
		return err
	}
	whole := newMG(nil, newTorus([3]int{1, 1, 1}, 0), side, j.p.Seed)
	if err := whole.solve(j.iterations); err != nil {
		return err
	}
	l, w := m.levels[0], whole.levels[0]
	var err error
	l.each(func(at int) {
		x, y, z := l.place(at)
		if want, got := w.u[w.index(x+1, y+1, z+1)], l.u[at]; err == nil && !j.alike(want, got, 0) {
			err = j.wrong(want, got, "solution at (%d, %d, %d)", x, y, z)
		}
	})
	return err
}

// mgReference is up to which side the whole problem is solved again by each rank.
const mgReference = 32
