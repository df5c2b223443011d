package work

import (
	"encoding/binary"
	"math"

	"github.com/fabrictest/fabrictest/mpi"
)

// nbody moves particles that attract each other. Ranks pass their particles on in a ring
// until every rank has seen all, with the next ones under way while forces of the last are
// computed; then they exchange centre and momentum in an allgather of 64 bytes per rank,
// the size of most allgathers of the N-BODY application (Qian 2010 §4.3, §6.5.3).
func nbody(j *job) {
	size := map[Class]struct{ bodies, steps int }{
		ClassT: {128, 2}, ClassS: {1024, 10}, ClassW: {4096, 10}, ClassA: {16384, 10},
	}[j.p.Class]
	b := newBodies(j, size.bodies)
	b.computeForces()
	b.exchangeSummaries(-1) // before the first step
	j.start()
	for step := range j.setIterations(size.steps) {
		b.drift()
		b.computeForces()
		b.kick()
		b.exchangeSummaries(step)
	}
	j.stop()
	b.check()
}

// bodySize is the number of values of a transferred particle: mass and position.
const bodySize = 4

// bodies are a rank's particles.
type bodies struct {
	j         *job
	first, n  int
	total     int
	state     []float64 // mass and position of each
	velocity  []float64
	force     []float64
	passing   [2][]byte // under way
	momentum  [3]float64
	summaries []byte
}

// newBodies draws the particles of this rank, of total particles of all ranks.
func newBodies(j *job, total int) *bodies {
	b := &bodies{j: j, total: total, first: partStart(total, j.Size(), j.Rank())}
	b.n = partStart(total, j.Size(), j.Rank()+1) - b.first
	for i := b.first; i < b.first+b.n; i++ {
		k := key(j.p.Seed, uint64(i))
		b.state = append(b.state, 1.5+uniform(k)/2) // the mass, which the position follows
		for axis := range uint64(3) {
			b.state = append(b.state, uniform(mix(k+axis+1)))
			b.velocity = append(b.velocity, uniform(mix(k+axis+9))/10) // 9: other numbers than the position's
		}
	}
	b.force = make([]float64, 3*b.n)
	widest := (total + j.Size() - 1) / j.Size()
	for i := range b.passing {
		b.passing[i] = make([]byte, 8*bodySize*widest)
	}
	b.summaries = make([]byte, summarySize*j.Size())
	return b
}

const (
	timeStep = 1e-3
	// softening limits the force between close particles.
	softening = 1e-2
)

// drift moves the particles by their velocities for a time step.
func (b *bodies) drift() {
	for i := range b.n {
		for axis := range 3 {
			b.state[bodySize*i+1+axis] += timeStep * b.velocity[3*i+axis]
		}
	}
}

// kick changes the velocities of the particles by the forces for a time step.
func (b *bodies) kick() {
	for i := range b.n {
		mass := b.state[bodySize*i]
		for axis := range 3 {
			b.velocity[3*i+axis] += timeStep * b.force[3*i+axis] / mass
		}
	}
}

// computeForces computes the forces of all particles on this rank's. After a full round this
// rank's particles return, and must be unchanged.
func (b *bodies) computeForces() {
	clear(b.force)
	j, ranks := b.j, b.j.Size()
	left, right := (j.Rank()+ranks-1)%ranks, (j.Rank()+1)%ranks
	putFloats(b.passing[0], b.state)
	here, others := b.n, make([]float64, len(b.passing[0])/8) // here: particles in the buffer of this hop
	for hop := range ranks {
		buf := b.passing[hop%2][:8*bodySize*here]
		var in, out *mpi.Request
		if ranks > 1 {
			in, out = j.Irecv(b.passing[1-hop%2], left, 1), j.Isend(buf, right, 1)
		}
		visitors := others[:bodySize*here]
		getFloats(visitors, buf)
		b.addForces(b.force, visitors)
		j.spendComputePart(ranks)
		if ranks == 1 {
			return
		}
		j.wait(out)
		s := j.wait(in)
		from := (j.Rank() - hop - 1 + ranks) % ranks
		here = partStart(b.total, ranks, from+1) - partStart(b.total, ranks, from)
		j.checkEqual(uint64(8*bodySize*here), uint64(s.Count), "bytes of rank %d's particles at hop %d", from, hop)
	}
	want := make([]byte, 8*bodySize*b.n)
	putFloats(want, b.state)
	j.checkBytes(want, b.passing[ranks%2][:len(want)], "own particles after a way round %d ranks", ranks)
}

// addForces adds the forces of visitors on this rank's particles.
func (b *bodies) addForces(force, visitors []float64) {
	for i := range b.n {
		body := b.state[bodySize*i:][:bodySize]
		for v := 0; v < len(visitors); v += bodySize {
			other := visitors[v:][:bodySize]
			dx, dy, dz := other[1]-body[1], other[2]-body[2], other[3]-body[3]
			d2 := dx*dx + dy*dy + dz*dz + softening*softening
			f := body[0] * other[0] / (d2 * math.Sqrt(d2))
			force[3*i] += f * dx
			force[3*i+1] += f * dy
			force[3*i+2] += f * dz
		}
	}
}

// exchangeSummaries exchanges mass, centre and momentum of all ranks, with a digest, and checks
// that the total momentum is constant: forces are mutual, therefore it changes only if two ranks
// have seen different particles. Step -1 records the initial momentum.
func (b *bodies) exchangeSummaries(step int) {
	var sum [7]float64
	for i := range b.n {
		mass := b.state[bodySize*i]
		sum[0] += mass
		for axis := range 3 {
			sum[1+axis] += mass * b.state[bodySize*i+1+axis]
			sum[4+axis] += mass * b.velocity[3*i+axis]
		}
	}
	mine := make([]byte, summarySize)
	putFloats(mine, sum[:])
	binary.LittleEndian.PutUint64(mine[summaryDigestAt:], summaryDigest(mine, b.j.Rank()))
	b.j.Allgather(mine, b.summaries)
	var momentum [3]float64
	for rank := range b.j.Size() {
		s := b.summaries[summarySize*rank:][:summarySize]
		b.j.checkEqual(summaryDigest(s, rank), binary.LittleEndian.Uint64(s[summaryDigestAt:]), "digest of rank %d's summary after step %d", rank, step)
		for axis := range momentum {
			momentum[axis] += getFloat(s[8*(4+axis):])
		}
	}
	if step < 0 {
		b.momentum = momentum
		return
	}
	for axis, want := range b.momentum {
		b.j.checkWithin(want, momentum[axis], 1e-10*float64(b.total),
			"momentum of all along axis %d after step %d", axis, step)
	}
}

// A summary has seven numbers (mass, mass times position, momentum) and their digest.
const (
	summarySize     = 64
	summaryDigestAt = 56
)

// summaryDigest is the digest of the seven numbers of a rank's summary.
func summaryDigest(summary []byte, rank int) uint64 {
	k := uint64(rank)
	for at := 0; at < summaryDigestAt; at += 8 {
		k = key(k, binary.LittleEndian.Uint64(summary[at:]))
	}
	return k
}

// check gathers all particles and compares the last forces with a direct computation.
func (b *bodies) check() {
	j, ranks := b.j, b.j.Size()
	each := len(b.passing[0])
	mine, all := make([]byte, each), make([]byte, each*ranks)
	putFloats(mine, b.state)
	j.Allgather(mine, all)
	want := make([]float64, 3*b.n)
	for rank := range ranks {
		n := partStart(b.total, ranks, rank+1) - partStart(b.total, ranks, rank)
		visitors := make([]float64, bodySize*n)
		getFloats(visitors, all[each*rank:])
		b.addForces(want, visitors)
	}
	for i, w := range want {
		j.checkWithin(w, b.force[i], 1e-9*float64(b.total), "force on particle %d along axis %d", b.first+i/3, i%3)
	}
}
