package work

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/mpi"
)

// wavefront solves a system on a grid by sweeps from one corner to the opposite and back,
// as NPB's LU does. Ranks have columns of the grid; a plane can be swept when those of the
// northern and western neighbours have been. A sweep is a pipeline with two small messages
// per plane and rank: five numbers for each point of an edge (1560 to 1640 bytes in the
// measured runs, sent from the same buffers thousands of times: Thesis Table 5.1). It has
// the most messages of all NAS benchmarks, and many are unexpected (Survey Table 1). Before
// each pair of sweeps, faces are exchanged with receives of any source (Thesis Fig. 4.18),
// which excludes speculation.
func wavefront(j *job) {
	size := luSizes[j.p.Class]
	rows, columns := rectangle(j.Size())
	g := newLUGrid(j.p.Seed, size.side, rows, columns, j.Rank())
	l := newLU(j, g)
	before := l.errorNorm()
	j.start()
	for range j.setIterations(size.steps) {
		l.step()
	}
	j.stop()
	l.check(before, size.side)
}

var luSizes = map[Class]luSize{
	ClassT: {side: 10, steps: 4},
	ClassS: {side: 12, steps: 50},
	ClassW: {side: 33, steps: 50},
	ClassA: {side: 64, steps: 100},
}

// luUnfit says why a number of ranks cannot share the problem of a class.
func luUnfit(c Class, ranks int) string {
	if rows, columns := rectangle(ranks); columns > luSizes[c].side {
		return fmt.Sprintf("%d rows of %d on a side of %d points", rows, columns, luSizes[c].side)
	}
	return ""
}

type luSize struct{ side, steps int }

// lu is a rank's part of the solution.
type lu struct {
	j                        *job
	g                        *luGrid
	north, south, west, east int       // neighbours; -1 if there is none
	edge                     [2][]byte // along x and along y
	in                       [4][]byte
	out                      [4][]byte
}

// luVars is the number of unknowns of a point.
const luVars = 5

func newLU(j *job, g *luGrid) *lu {
	l := &lu{j: j, g: g, north: -1, south: -1, west: -1, east: -1}
	if g.row > 0 {
		l.north = j.Rank() - g.columns
	}
	if g.row < g.rows-1 {
		l.south = j.Rank() + g.columns
	}
	if g.column > 0 {
		l.west = j.Rank() - 1
	}
	if g.column < g.columns-1 {
		l.east = j.Rank() + 1
	}
	for i, n := range []int{g.nx, g.ny} {
		l.edge[i] = make([]byte, 8*luVars*n)
	}
	for i := range l.in {
		n := 8 * luVars * g.nx * g.side
		if i >= 2 {
			n = 8 * luVars * g.ny * g.side
		}
		l.in[i], l.out[i] = make([]byte, n), make([]byte, n)
	}
	return l
}

// Tags: the direction a message comes from.
const (
	luFromNorth = iota + 1
	luFromSouth
	luFromWest
	luFromEast
)

// step exchanges faces, and sweeps down and up.
func (l *lu) step() {
	g := l.g
	l.exchangeFaces()
	for z := range g.side {
		l.receiveEdge(z, l.north, luFromNorth)
		l.receiveEdge(z, l.west, luFromWest)
		l.j.compute(4 * g.side)
		g.sweepDown(z)
		l.sendEdge(z, l.south, luFromNorth)
		l.sendEdge(z, l.east, luFromWest)
	}
	for z := g.side - 1; z >= 0; z-- {
		l.receiveEdge(z, l.south, luFromSouth)
		l.receiveEdge(z, l.east, luFromEast)
		l.j.compute(4 * g.side)
		g.sweepUp(z)
		l.sendEdge(z, l.north, luFromSouth)
		l.sendEdge(z, l.west, luFromEast)
	}
}

// receiveEdge receives an edge that the sweep of a plane needs, if there is a neighbour.
func (l *lu) receiveEdge(z, from, tag int) {
	if from < 0 {
		return
	}
	buf := l.edge[(tag-1)/2]
	l.j.recvWithDigest(buf, from, tag)
	l.g.putEdge(buf, l.g.ghostEdge(tag), z)
}

// sendEdge sends an edge of a swept plane, if there is a neighbour. The southern neighbour
// receives its northern edge.
func (l *lu) sendEdge(z, to, tag int) {
	if to < 0 {
		return
	}
	buf := l.edge[(tag-1)/2]
	l.g.getEdge(buf, l.g.ownEdge(tag), z)
	l.j.sendWithDigest(buf, to, tag)
}

// exchangeFaces receives the faces of all four neighbours.
func (l *lu) exchangeFaces() {
	directions := []struct{ from, to, tag int }{
		{l.north, l.south, luFromNorth},
		{l.south, l.north, luFromSouth},
		{l.west, l.east, luFromWest},
		{l.east, l.west, luFromEast},
	}
	for _, w := range directions {
		in, out := l.in[w.tag-1], l.out[w.tag-1]
		face := len(in) / l.g.side
		var r *mpi.Request
		if w.from >= 0 {
			r = l.j.Irecv(in, mpi.AnySource, faceTag+w.tag)
		}
		l.j.compute(8)
		if w.to >= 0 {
			for z := range l.g.side {
				l.g.getEdge(out[z*face:][:face], l.g.ownEdge(w.tag), z)
			}
			l.j.sendWithDigest(out, w.to, faceTag+w.tag)
		}
		if r != nil {
			s := l.j.wait(r)
			l.j.checkEqual(uint64(w.from), uint64(s.Source), "source of a face with tag %d", faceTag+w.tag)
			l.j.digestReceived(w.from, in)
			for z := range l.g.side {
				l.g.putEdge(in[z*face:][:face], l.g.ghostEdge(w.tag), z)
			}
		}
	}
}

const faceTag = 10

// errorNorm is the largest difference from the exact solution.
func (l *lu) errorNorm() float64 {
	far := 0.0
	l.g.each(func(x, y, z, v, at int) {
		far = max(far, math.Abs(l.g.u[at]-l.g.exact(x, y, z, v)))
	})
	return l.j.maxAll(far)
}

// luReference is the number of points up to which each rank also solves the whole problem.
const luReference = 40000

// check compares the error with the initial one and, for small grids, every number with
// sweeps over the whole grid by one rank. They must be equal to the bit, because the order
// of points does not depend on the division.
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
		for z := range side {
			whole.sweepDown(z)
		}
		for z := side - 1; z >= 0; z-- {
			whole.sweepUp(z)
		}
	}
	l.g.each(func(x, y, z, v, at int) {
		if want, got := whole.u[whole.index(x, y, z, v)], l.g.u[at]; !j.withinBound(want, got, 0) {
			j.failVerification(want, got, "unknown %d at (%d, %d, %d)", v, x, y, z)
		}
	})
}
