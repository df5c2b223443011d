package work

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// algebraicMultigrid exchanges what a solver on unstructured grids does on its levels,
// after AMG2006: the coarser a level, the farther its points are tied, so that messages
// become smaller and partners more. Receives from all partners are posted, then what
// they need is gathered and sent, then all is waited for. Messages are of some bytes to
// a few KB (Thesis Table 5.1: 8 to 3648), from many buffers of which none is used very
// often (Tables 5.1 and 5.4). Who needs what is found out before by an all-to-all of
// counts and requests that are received from any source, by probes.
func algebraicMultigrid() *Workload {
	return levelsWorkload("amg", "levels with more and more partners (AMG2006)", "Thesis Tables 5.1 and 5.4, §5.5.2", func(level, levels, points int) int {
		return amgReach * (level + 1)
	})
}

// semicoarsening does so after SMG2000, whose coarsest levels tie everything to
// everything: every rank talks to every other (Thesis §6.6.2, Table 6.1).
func semicoarsening() *Workload {
	return levelsWorkload("smg", "levels of which the coarsest ties all ranks (SMG2000)", "Thesis §6.6.2, Table 6.1", func(level, levels, points int) int {
		if level == levels-1 {
			return points / 2
		}
		return amgReach * (level + 1)
	})
}

// amgReach is how far points of the finest level are tied.
const amgReach = 24

// levelsWorkload makes one of how far the points of a level are tied.
func levelsWorkload(name, title, paper string, reach func(level, levels, points int) int) *Workload {
	return runner(&Workload{Name: name, Title: title, Paper: paper, MinRanks: 1, RankRule: AnyCount}, func(j *job) error {
		size := map[Class]struct{ points, levels, cycles int }{
			ClassT: {128, 4, 2}, ClassS: {256, 5, 10}, ClassW: {512, 6, 40}, ClassA: {1024, 7, 100},
		}[j.p.Class]
		all := make([]*tied, size.levels)
		for i := range all {
			points := j.Size() * size.points >> i
			t, err := newTied(j, i, points, min(reach(i, size.levels, points), points/2))
			if err != nil {
				return fmt.Errorf("level %d: %w", i, err)
			}
			all[i] = t
		}
		if err := j.start(); err != nil {
			return err
		}
		for cycle := range j.steps(size.cycles) {
			for i := range 2*len(all) - 1 { // down, and up again
				if err := all[min(i, 2*len(all)-2-i)].exchange(cycle, i); err != nil {
					return err
				}
			}
			if n, err := j.sum(1); err != nil {
				return err
			} else if !j.alike(float64(j.Size()), n, 0) {
				return j.wrong(j.Size(), n, "ranks that were counted at the end of cycle %d", cycle)
			}
		}
		j.stop()
		partners := 0
		for _, t := range all {
			partners = max(partners, len(t.from))
		}
		most, err := j.most(float64(partners))
		j.figure("partners on the level with most", most, "")
		return err
	})
}

// tied is a level: points in a circle, of which each rank has some in a row, and each
// is tied to all within reach.
type tied struct {
	j          *job
	level      int
	points     int
	reach      int
	first, end int
	from       []exchanged // whose points this rank needs
	to         []exchanged // who needs this rank's
	requests   []*mpi.Request
}

// exchanged is what goes to a rank or comes from it.
type exchanged struct {
	rank   int
	points []uint32
	buf    []byte
}

const (
	tagRequest = 903
	tagPoints  = 1000 // and the level
)

// newTied finds out who needs what. All ranks do so.
func newTied(j *job, level, points, reach int) (*tied, error) {
	t := &tied{j: j, level: level, points: points, reach: reach}
	t.first, t.end = part(points, j.Size(), j.Rank()), part(points, j.Size(), j.Rank()+1)
	needed := make([][]uint32, j.Size())
	seen := make([]bool, points)
	for i := t.first - reach; i < t.end+reach && t.end > t.first; i++ {
		p := (i%points + points) % points
		if owner := t.owner(p); owner != j.Rank() && !seen[p] {
			seen[p] = true
			needed[owner] = append(needed[owner], uint32(p))
		}
	}
	out, in := make([]byte, 4*j.Size()), make([]byte, 4*j.Size())
	for rank, ps := range needed {
		binary.LittleEndian.PutUint32(out[4*rank:], uint32(len(ps)))
		if len(ps) > 0 {
			t.from = append(t.from, exchanged{rank, ps, make([]byte, 8*len(ps))})
		}
	}
	if err := j.Alltoall(out, in); err != nil {
		return nil, err
	}
	var sends []*mpi.Request
	for _, e := range t.from {
		list := make([]byte, 4*len(e.points))
		putKeys(list, e.points)
		r, err := j.Isend(list, e.rank, tagRequest+level)
		if err != nil {
			return nil, err
		}
		sends = append(sends, r)
	}
	for rank := range j.Size() {
		if binary.LittleEndian.Uint32(in[4*rank:]) > 0 {
			if err := t.takeRequest(in); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(t.to, func(a, b exchanged) int { return a.rank - b.rank })
	return t, j.waitAll(sends...)
}

// owner is the rank that has a point.
func (t *tied) owner(p int) int {
	r := p * t.j.Size() / t.points
	for part(t.points, t.j.Size(), r) > p {
		r--
	}
	for part(t.points, t.j.Size(), r+1) <= p {
		r++
	}
	return r
}

// takeRequest receives a request, whoever it is from, and notes what it asks for.
func (t *tied) takeRequest(counts []byte) error {
	j := t.j
	s, err := j.Probe(mpi.AnySource, tagRequest+t.level)
	if err != nil {
		return err
	}
	if err := j.same(4*uint64(binary.LittleEndian.Uint32(counts[4*s.Source:])), uint64(s.Count), "bytes of the request of rank %d on level %d", s.Source, t.level); err != nil {
		return err
	}
	list := make([]byte, s.Count)
	if _, err := j.Recv(list, s.Source, tagRequest+t.level); err != nil {
		return err
	}
	e := exchanged{s.Source, make([]uint32, s.Count/4), make([]byte, 2*s.Count)}
	getKeys(e.points, list)
	for _, p := range e.points {
		if int(p) < t.first || int(p) >= t.end {
			return j.wrong(fmt.Sprintf("one of %d to %d", t.first, t.end-1), p, "a point that rank %d asks for on level %d", s.Source, t.level)
		}
	}
	t.to = append(t.to, e)
	return nil
}

// value is what a point has at some time.
func (t *tied) value(point uint32, cycle, step int) float64 {
	return unit(key(t.j.p.Seed, uint64(t.level), uint64(cycle), uint64(step), uint64(point)))
}

// exchange brings what this rank's points are tied to, and checks it.
func (t *tied) exchange(cycle, step int) error {
	j := t.j
	t.requests = t.requests[:0]
	for _, e := range t.from {
		r, err := j.Irecv(e.buf, e.rank, tagPoints+t.level)
		if err != nil {
			return err
		}
		t.requests = append(t.requests, r)
	}
	for _, e := range t.to {
		for i, p := range e.points {
			putFloats(e.buf[8*i:], []float64{t.value(p, cycle, step)})
		}
		r, err := j.Isend(e.buf, e.rank, tagPoints+t.level)
		if err != nil {
			return err
		}
		t.requests = append(t.requests, r)
	}
	j.compute(8)
	if err := j.waitAll(t.requests...); err != nil {
		return err
	}
	for _, e := range t.from {
		for i, p := range e.points {
			if want, got := t.value(p, cycle, step), getFloat(e.buf[8*i:]); !j.alike(want, got, 0) {
				return j.wrong(want, got, "point %d of level %d from rank %d, cycle %d", p, t.level, e.rank, cycle)
			}
		}
	}
	return nil
}
