package work

import (
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
)

// group is a communicator of some ranks that perform operations while the other groups do.
type group struct {
	*mpi.Comm
	number, of int // of the groups
}

// newGroup returns the group of this rank, of so many groups: one of the ranks whose numbers leave the same
// remainder. If ranks are on hosts in blocks, those of a group are on as many hosts as possible.
func (j *job) newGroup(of int) *group {
	if of <= 1 {
		return &group{j.world.Comm, 0, 1}
	}
	number := j.Rank() % of
	return &group{must(j.world.Split(number, 0)), number, of}
}

// worldRank returns the rank of a member of the group among all ranks.
func (g *group) worldRank(member int) int { return member*g.of + g.number }

// operation is a collective operation of a group with the buffers of a rank, which are always the same. The
// root is rank 0 of the group.
type operation struct {
	*group
	op coll.Op
	// prepare sets the input of round i, run executes it, and check checks the output.
	prepare func(i int)
	run     func(i int) error
	check   func(i int)
}

// newOperation returns an operation with blocks, or a vector, of n bytes.
func (j *job) newOperation(g *group, op coll.Op, n int) *operation {
	o := &operation{group: g, op: op, prepare: func(int) {}, check: func(int) {}}
	switch op {
	case coll.Barrier:
		o.run = func(int) error { return g.Barrier() }
	case coll.Bcast:
		j.initBcast(o, n)
	case coll.Scatter, coll.Gather, coll.Allgather, coll.Alltoall:
		j.initBlocks(o, n)
	default:
		j.initReduction(o, n)
	}
	return o
}

func (j *job) initBcast(o *operation, n int) {
	buf, root := make([]byte, n), o.worldRank(0)
	o.prepare = func(i int) {
		if o.Rank() == 0 {
			fill(buf, j.messageKey(root, root, i))
		}
	}
	o.run = func(int) error { return o.Bcast(buf, 0) }
	o.check = func(i int) { j.checkContents(buf, j.messageKey(root, root, i), "broadcast %d", i) }
}

// initBlocks sets an operation whose data are blocks. Each block has the contents of a message between
// its first and its last rank; a block for all ranks, those of a message to itself.
func (j *job) initBlocks(o *operation, n int) {
	me, size, w := o.Rank(), o.Size(), o.Comm
	one, all := make([]byte, n), make([]byte, n*size)
	keyOf := func(from, to, i int) uint64 { return j.messageKey(o.worldRank(from), o.worldRank(to), i) }
	fillOne := func(i int) { fill(one, keyOf(me, me, i)) }
	checkAll := func(i int) {
		for from := range size {
			j.checkContents(all[from*n:][:n], keyOf(from, from, i), "block of rank %d in round %d", from, i)
		}
	}
	switch o.op {
	case coll.Scatter:
		o.prepare = func(i int) {
			for to := 0; me == 0 && to < size; to++ {
				fill(all[to*n:][:n], keyOf(0, to, i))
			}
		}
		o.run = func(int) error { return w.Scatter(all, one, 0) }
		o.check = func(i int) { j.checkContents(one, keyOf(0, me, i), "block in round %d", i) }
	case coll.Gather:
		o.prepare = fillOne
		o.run = func(int) error { return w.Gather(one, all, 0) }
		o.check = func(i int) {
			if me == 0 {
				checkAll(i)
			}
		}
	case coll.Allgather:
		o.prepare, o.check = fillOne, checkAll
		o.run = func(int) error { return w.Allgather(one, all) }
	default:
		received := make([]byte, n*size)
		o.prepare = func(i int) {
			for to := range size {
				fill(all[to*n:][:n], keyOf(me, to, i))
			}
		}
		o.run = func(int) error { return w.Alltoall(all, received) }
		o.check = func(i int) {
			for from := range size {
				j.checkContents(received[from*n:][:n], keyOf(from, me, i), "block of rank %d in round %d", from, i)
			}
		}
	}
}

// weight is the factor of a rank's numbers in a reduction, and weights the sum of those of ranks.
func weight(rank int) float64 { return float64(1 + key(uint64(rank))%64) }

func weights(first, end int) (sum float64) {
	for rank := first; rank < end; rank++ {
		sum += weight(rank)
	}
	return sum
}

// initReduction sets an operation that sums up numbers: integers, so that each order of additions gives
// the same.
func (j *job) initReduction(o *operation, n int) {
	const t, sum = mpi.Float64, mpi.Sum
	me, size, w := o.Rank(), o.Size(), o.Comm
	in, out := make([]byte, n), make([]byte, n)
	first, want := 0, weights(0, size) // of the result: its first element, and the weight of its numbers
	switch o.op {
	case coll.Reduce:
		o.run = func(int) error { return w.Reduce(in, out, t, sum, 0) }
		if me > 0 {
			out = nil
		}
	case coll.Allreduce:
		o.run = func(int) error { return w.Allreduce(in, out, t, sum) }
	case coll.ReduceScatter:
		in, first = make([]byte, n*size), me*n/8
		o.run = func(int) error { return w.ReduceScatterBlock(in, out, t, sum) }
	case coll.Scan:
		want = weights(0, me+1)
		o.run = func(int) error { return w.Scan(in, out, t, sum) }
	default:
		want = weights(0, me) // 0 at rank 0, whose buffer does not change
		o.run = func(int) error { return w.Exscan(in, out, t, sum) }
	}
	number := func(e, i int) float64 {
		return float64(mix(key(j.p.Seed, uint64(i), uint64(o.number))+uint64(e)) >> 48)
	}
	o.prepare = func(i int) {
		for e := range len(in) / 8 {
			putFloats(in[8*e:], []float64{weight(me) * number(e, i)})
		}
	}
	o.check = func(i int) {
		for e := range len(out) / 8 {
			if wanted := want * number(first+e, i); !j.withinBound(wanted, getFloat(out[8*e:]), exactly) {
				j.failVerification(wanted, getFloat(out[8*e:]), "element %d in round %d", e, i)
			}
		}
	}
}
