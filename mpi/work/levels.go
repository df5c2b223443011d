package work

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// algebraicMultigrid has the exchanges of a multigrid solver on unstructured grids, after
// AMG2006: on coarser levels points are coupled farther, therefore messages become smaller
// and partners more. Receives from all partners are posted, then the data is gathered and
// sent, then all is waited for. Messages have some bytes to a few KB (Rashti 2010 Table 5.1: 8
// to 3648), from many buffers of which none is used very often (Tables 5.1 and 5.4). The
// setup exchanges counts in an all-to-all, and requests with probes of any source.
func algebraicMultigrid(j *job) {
	runLevels(j, func(level, _, _ int) int { return amgReach * (level + 1) })
}

// semicoarsening has the exchanges of a multigrid solver after SMG2000. Its coarsest level couples
// all points: there each rank communicates with every other (Rashti 2010 §6.6.2, Table 6.1).
func semicoarsening(j *job) {
	runLevels(j, func(level, levels, points int) int {
		if level == levels-1 {
			return points / 2
		}
		return amgReach * (level + 1)
	})
}

// amgReach is how far points of the finest level are coupled.
const amgReach = 24

// runLevels exchanges the points of all levels, from the finest to the coarsest and back in each
// cycle, which ends with a sum over all ranks. reach returns the distance, in points, up to which
// the points of a level are coupled.
func runLevels(j *job, reach func(level, levels, points int) int) {
	size := map[Class]struct{ points, levels, cycles int }{
		ClassT: {128, 4, 2}, ClassS: {256, 5, 10}, ClassW: {512, 6, 40}, ClassA: {1024, 7, 100},
	}[j.p.Class]
	all := make([]*gridLevel, size.levels)
	for i := range all {
		points := j.Size() * size.points >> i
		all[i] = newLevel(j, i, points, min(reach(i, size.levels, points), points/2))
	}
	j.start()
	for cycle := range j.setIterations(size.cycles) {
		for i := range 2*len(all) - 1 { // down, and up again
			all[min(i, 2*len(all)-2-i)].exchange(cycle, i)
		}
		j.checkWithin(float64(j.Size()), j.sumAll(1), exactly, "ranks that were counted at the end of cycle %d", cycle)
	}
	j.stop()
	partners := 0
	for _, t := range all {
		partners = max(partners, len(t.from))
	}
	j.addFigure("partners on the level with most", j.maxAll(float64(partners)), "")
}

// gridLevel is a level: points on a circle, contiguous per rank, each coupled to all in reach.
type gridLevel struct {
	j          *job
	level      int
	first, end int               // points of this rank
	from       []neighbourPoints // ranks whose points this rank needs
	to         []neighbourPoints // ranks that need points of this rank
	requests   []*mpi.Request
}

// neighbourPoints are the points to or from a rank.
type neighbourPoints struct {
	rank   int
	points []uint32
	buf    []byte
}

const (
	tagRequest = 903
	tagPoints  = 1000 // plus the level
)

// newLevel creates a level whose points form a ring and are coupled to those within reach. All ranks
// call it; each requests the points that it needs from their owners, none if it has no points.
func newLevel(j *job, level, points, reach int) *gridLevel {
	defer annotateError("level %d", level)
	t := &gridLevel{j: j, level: level}
	t.first, t.end = partStart(points, j.Size(), j.Rank()), partStart(points, j.Size(), j.Rank()+1)
	needed := make([][]uint32, j.Size())
	seen := make([]bool, points)
	for i := t.first - reach; i < t.end+reach && t.end > t.first; i++ {
		p := (i + points) % points
		owner := ((p+1)*j.Size() - 1) / points // the last rank whose part starts at or before p
		if owner != j.Rank() && !seen[p] {
			seen[p] = true
			needed[owner] = append(needed[owner], uint32(p))
		}
	}
	out, in := make([]byte, 4*j.Size()), make([]byte, 4*j.Size())
	for rank, ps := range needed {
		binary.LittleEndian.PutUint32(out[4*rank:], uint32(len(ps)))
		if len(ps) > 0 {
			t.from = append(t.from, neighbourPoints{rank, ps, make([]byte, 8*len(ps))})
		}
	}
	j.Alltoall(out, in)
	sends := make([]*mpi.Request, 0, len(t.from))
	for _, e := range t.from {
		request := must(binary.Append(nil, binary.LittleEndian, e.points))
		sends = append(sends, j.Isend(request, e.rank, tagRequest+level))
	}
	for rank := range j.Size() {
		if binary.LittleEndian.Uint32(in[4*rank:]) > 0 {
			t.receiveRequest(in)
		}
	}
	slices.SortFunc(t.to, func(a, b neighbourPoints) int { return a.rank - b.rank })
	j.waitAll(sends...)
	return t
}

// receiveRequest receives a request from any source, and stores the requested points. counts has
// the number of points that each rank requests.
func (t *gridLevel) receiveRequest(counts []byte) {
	j := t.j
	s := must(j.world.Probe(mpi.AnySource, tagRequest+t.level))
	j.checkEqual(4*uint64(binary.LittleEndian.Uint32(counts[4*s.Source:])), uint64(s.Count), "bytes of the request of rank %d on level %d", s.Source, t.level)
	list := make([]byte, s.Count)
	j.Recv(list, s.Source, tagRequest+t.level)
	e := neighbourPoints{s.Source, make([]uint32, s.Count/4), make([]byte, 2*s.Count)}
	must(binary.Decode(list, binary.LittleEndian, e.points))
	for _, p := range e.points {
		if int(p) < t.first || int(p) >= t.end {
			j.failVerification(fmt.Sprintf("one of %d to %d", t.first, t.end-1), p, "a point that rank %d asks for on level %d", s.Source, t.level)
		}
	}
	t.to = append(t.to, e)
}

// value is the value of a point in a step of a cycle, which every rank can compute.
func (t *gridLevel) value(point uint32, cycle, step int) float64 {
	return uniform(key(t.j.p.Seed, uint64(t.level), uint64(cycle), uint64(step), uint64(point)))
}

// exchange sends the values of this rank's points to the ranks that need them, receives those that
// its own points are coupled to, and checks them. It computes for 1/8 of a step meanwhile.
func (t *gridLevel) exchange(cycle, step int) {
	j := t.j
	t.requests = t.requests[:0]
	for _, e := range t.from {
		t.requests = append(t.requests, j.Irecv(e.buf, e.rank, tagPoints+t.level))
	}
	for _, e := range t.to {
		for i, p := range e.points {
			putFloats(e.buf[8*i:], []float64{t.value(p, cycle, step)})
		}
		t.requests = append(t.requests, j.Isend(e.buf, e.rank, tagPoints+t.level))
	}
	j.spendComputePart(8)
	j.waitAll(t.requests...)
	for _, e := range t.from {
		for i, p := range e.points {
			if want, got := t.value(p, cycle, step), getFloat(e.buf[8*i:]); !j.withinBound(want, got, exactly) {
				j.failVerification(want, got, "point %d of level %d from rank %d, cycle %d", p, t.level, e.rank, cycle)
			}
		}
	}
}
