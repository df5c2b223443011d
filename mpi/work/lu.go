package work

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/mpi"
)

// wavefront solves a system on a cubic grid by sweeps from one corner to the opposite and back, as
// NPB's LU does. Ranks are arranged in rows and columns, and divide each plane (the points with the
// same z) among them; a rank sweeps its part after its northern and western neighbours theirs. A
// sweep is a pipeline with two small messages per plane and rank, five numbers for each point of an
// edge, from the same buffers thousands of times (Rashti 2010 Table 5.1); many are unexpected (Sur
// 2006 Table 1). Before each pair of sweeps, faces are exchanged with receives of any source
// (Rashti 2010 Fig. 4.18).
func wavefront(j *job) {
	size := luSizes[j.p.Class]
	rows, columns := rectangle(j.Size())
	g := newLUGrid(j.p.Seed, size.side, rows, columns, j.Rank())
	l := newLU(j, g)
	before := l.errorNorm()
	j.start()
	for range j.setIterations(size.steps) {
		l.exchangeFaces()
		g.eachPlane(l.sweepPlane)
	}
	j.stop()
	l.check(before, size.side)
}

var luSizes = map[Class]luSize{
	ClassT: {side: 10, steps: 4},
	ClassS: {side: 12, steps: 50},
	ClassW: {side: 33, steps: 50},
	ClassA: {side: 64, steps: 100},
	ClassB: {side: 102, steps: 250},
	ClassC: {side: 162, steps: 250},
}

// luUnfitReason returns why a number of ranks cannot share the problem of a class; "" if it can.
// Each rank needs a point along x and y; there are never more rows than columns.
func luUnfitReason(c Class, ranks int) string {
	if rows, columns := rectangle(ranks); columns > luSizes[c].side {
		return fmt.Sprintf("%d × %d of them do not fit on a side of %d points", rows, columns, luSizes[c].side)
	}
	return ""
}

type luSize struct{ side, steps int }

// lu is a rank's part of the solution.
type lu struct {
	j          *job
	g          *luGrid
	neighbours [4]int // by direction; -1 if there is none
	edge       [4][]byte
	in, out    [4][]byte // faces
}

const (
	luVars   = 5 // unknowns of a point
	luLayers = 2 // layers of points in a face, as in NPB's LU, whose differences reach so far
)

// newLU finds the neighbours of a rank, and allocates the buffers of edges and faces.
func newLU(j *job, g *luGrid) *lu {
	l := &lu{j: j, g: g}
	for d := range l.neighbours {
		row, column := g.row+luSteps[d][1], g.column+luSteps[d][0]
		l.neighbours[d] = row*g.columns + column
		if row < 0 || row >= g.rows || column < 0 || column >= g.columns {
			l.neighbours[d] = -1
		}
		n := 8 * luVars * g.ownEdge(d).n
		l.edge[d], l.in[d], l.out[d] = make([]byte, n), make([]byte, luLayers*n*g.side), make([]byte, luLayers*n*g.side)
	}
	return l
}

// Directions of the grid. The opposite of direction d is d^1.
const (
	north = iota
	south
	west
	east
)

// luSteps are the steps in each direction along x and y.
var luSteps = [4][2]int{north: {0, -1}, south: {0, 1}, west: {-1, 0}, east: {1, 0}}

// sweepPlane sweeps plane z with the edges from north and west, or back from south and east, and
// sends the opposite edges on. The opposite of direction d is d^1.
func (l *lu) sweepPlane(z int, back bool) {
	a, b := north, west
	if back {
		a, b = south, east
	}
	l.receiveEdge(z, a)
	l.receiveEdge(z, b)
	l.j.spendComputePart(2 * 2 * l.g.side) // half of a step, over the planes of both sweeps
	l.g.sweep(z, back)
	l.sendEdge(z, a^1)
	l.sendEdge(z, b^1)
}

// luTag is the tag of an edge that its receiver gets from the neighbour in a direction.
func luTag(from int) int { return from + 1 }

// receiveEdge receives the edge of plane z from the neighbour in a direction, if there is one.
func (l *lu) receiveEdge(z, from int) {
	if rank := l.neighbours[from]; rank >= 0 {
		l.j.recvWithDigest(l.edge[from], rank, luTag(from))
		l.g.putEdge(l.edge[from], l.g.ghostEdge(from), z)
	}
}

// sendEdge sends the edge of plane z to the neighbour in a direction, if there is one. The southern
// neighbour receives its northern edge.
func (l *lu) sendEdge(z, to int) {
	if rank := l.neighbours[to]; rank >= 0 {
		l.g.getEdge(l.edge[to], l.g.ownEdge(to), z)
		l.j.sendWithDigest(l.edge[to], rank, luTag(to^1))
	}
}

// exchangeFaces exchanges faces: the points at the edge of each plane, and those one step inwards.
// The sweeps use only the former, but NPB's LU sends both. For each direction in turn it receives
// from the neighbour there, computes for 1/8 of a step, and sends to the opposite neighbour.
func (l *lu) exchangeFaces() {
	for d := range l.neighbours {
		from, to, tag := l.neighbours[d], l.neighbours[d^1], faceTag+luTag(d)
		in, out, n := l.in[d], l.out[d], len(l.edge[d])
		var r *mpi.Request
		if from >= 0 {
			r = l.j.Irecv(in, mpi.AnySource, tag)
		}
		l.j.spendComputePart(8)
		if to >= 0 {
			outer := l.g.ownEdge(d ^ 1)
			inner := outer // one step inwards
			inner.x, inner.y = outer.x+luSteps[d][0], outer.y+luSteps[d][1]
			for z := range l.g.side {
				l.g.getEdge(out[luLayers*z*n:][:n], outer, z)
				l.g.getEdge(out[(luLayers*z+1)*n:][:n], inner, z)
			}
			l.j.sendWithDigest(out, to, tag)
		}
		if r != nil {
			s := l.j.wait(r)
			l.j.checkEqual(uint64(from), uint64(s.Source), "source of a face with tag %d", tag)
			l.j.digestReceived(from, in)
			for z := range l.g.side {
				l.g.putEdge(in[luLayers*z*n:][:n], l.g.ghostEdge(d), z)
			}
		}
	}
}

const faceTag = 10

// errorNorm is the largest difference from the exact solution.
func (l *lu) errorNorm() float64 {
	largest := 0.0
	l.g.each(func(x, y, z, v, at int) {
		largest = max(largest, math.Abs(l.g.u[at]-l.g.exact(x, y, z, v)))
	})
	return l.j.maxAll(largest)
}

// luReference is the number of points up to which each rank also solves the whole problem.
const luReference = 40000

// check checks that all iterations together have reduced the error by luContraction for each
// iteration and, for small grids, that all values are those of one rank that sweeps the whole grid.
// They must be equal to the bit: the order of points does not depend on how the grid is divided
// among ranks.
func (l *lu) check(before float64, side int) {
	j := l.j
	after := l.errorNorm()
	bound := before*math.Pow(luContraction, float64(j.iterations)) + 1e-10
	j.checkSmall(after, bound, "distance from the solution after %d steps", j.iterations)
	j.addFigure("distance", after, "")
	if side*side*side > luReference {
		return
	}
	whole := newLUGrid(j.p.Seed, side, 1, 1, 0)
	for range j.iterations {
		whole.eachPlane(whole.sweep)
	}
	l.g.each(func(x, y, z, v, at int) {
		if want, got := whole.u[whole.index(x, y, z, v)], l.g.u[at]; !j.withinBound(want, got, exactly) {
			j.failVerification(want, got, "unknown %d at (%d, %d, %d)", v, x, y, z)
		}
	})
}
