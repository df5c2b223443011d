package work

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// bcast measures broadcasts from rank 0 along a binomial tree, always from and to the same buffers,
// as Rashti 2010 §5.5.1 does: the mean time of the operation over all ranks. A barrier follows each.
func bcast(j *job) {
	n := cmp.Or(j.p.Bytes, 1<<10)
	buf := make([]byte, n)
	measureTree(j, "bcast", n, func(round int) {
		if j.Rank() == 0 {
			fill(buf, j.messageKey(0, 0, round))
		}
	}, func(int) { j.Bcast(buf, 0) }, func(round int) {
		j.checkContents(buf, j.messageKey(0, 0, round), "broadcast %d", round)
	})
}

// gathers measures gathers at rank 0, always from and to the same buffers: the mean time of the
// operation over all ranks. A barrier follows each.
func gathers(j *job) {
	n := cmp.Or(j.p.Bytes, 1<<10)
	mine, all := make([]byte, n), make([]byte, n*j.Size())
	measureTree(j, "gather", n, func(round int) { fill(mine, j.messageKey(j.Rank(), 0, round)) },
		func(int) { check(j.world.Gather(mine, all, 0)) },
		func(round int) {
			for from := 0; j.Rank() == 0 && from < j.Size(); from++ {
				j.checkContents(all[from*n:][:n], j.messageKey(from, 0, round), "block of rank %d in round %d", from, round)
			}
		})
}

// scatter measures scatters by rank 0 along a binomial tree, as Rashti 2010 §5.5.1 does: the mean
// time of the operation over all ranks. A barrier follows each. The buffers of rank 0 and of the
// leaves are always the same; ranks between receive the data of their subtree into a new buffer.
func scatter(j *job) {
	n := cmp.Or(j.p.Bytes, 1<<10)
	s := &scatterTree{j: j, n: n, subtree: subtreeOf(j.Rank(), j.Size()), all: make([]byte, n*j.Size()), mine: make([]byte, n)}
	rounds := treeRounds(j)
	if j.Rank() > 0 && s.subtree > 1 {
		s.between = newPackedBuffers(rounds, n*s.subtree)
	}
	measureTree(j, "scatter", n, func(round int) {
		for to := 0; j.Rank() == 0 && to < j.Size(); to++ {
			fill(s.all[to*n:][:n], j.messageKey(0, to, round))
		}
	}, s.run, func(round int) {
		j.checkContents(s.mine, j.messageKey(0, j.Rank(), round), "part in round %d", round)
	})
}

// subtreeOf returns the number of ranks below a rank in the binomial tree of rank 0, itself included.
func subtreeOf(rank, ranks int) int {
	if rank == 0 {
		return ranks
	}
	return min(rank&-rank, ranks-rank) // the numbers up to the next with a higher lowest bit
}

// scatterTree is a rank's part of scatters.
type scatterTree struct {
	j       *job
	n       int
	subtree int // ranks of the subtree of this rank, itself included
	all     []byte
	mine    []byte
	between *bufferSet // one for each round, of ranks that forward data
}

// run receives the data of this rank's subtree from its parent, and sends those of other ranks to the
// children that are nearest to them, the largest part first.
func (s *scatterTree) run(round int) {
	j, me, data := s.j, s.j.Rank(), s.all
	if me > 0 {
		data = s.mine
		if s.between != nil {
			data = s.between.at(round)
		}
		j.Recv(data, me-me&-me, 1)
	}
	var sends []*mpi.Request
	top := 1
	for top < s.subtree {
		top *= 2
	}
	end := s.subtree
	for child := top / 2; child > 0; child /= 2 {
		sends = append(sends, j.Isend(data[child*s.n:end*s.n], me+child, 1))
		end = child
	}
	copy(s.mine, data)
	j.waitAll(sends...)
}

// treeRounds sets the iterations of a collective's measurement, and returns them.
func treeRounds(j *job) int {
	return j.setIterations(map[Class]int{ClassT: 4, ClassS: 50, ClassW: 500, ClassA: 1000}[j.p.Class])
}

// measureTree measures rounds of a collective operation with n bytes, and adds the mean time of all
// ranks within it to the result. before makes the data of a round and after checks it; neither
// counts.
func measureTree(j *job, name string, n int, before, operation, after func(round int)) {
	rounds := treeRounds(j)
	var inCalls time.Duration
	j.start()
	for round := range rounds {
		before(round)
		began := j.Wtime()
		operation(round)
		inCalls += j.Wtime() - began
		after(round)
		j.Barrier()
	}
	j.stop()
	mean := j.sumAll(inCalls.Seconds()) / float64(rounds*j.Size())
	j.addFigure(fmt.Sprintf("%s %d B", name, n), mean*1e6, "us")
}
