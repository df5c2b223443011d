package work

import (
	"cmp"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
)

// scatter measures scatters by rank 0 along a binomial tree, as Rashti 2010 §5.5.1 does: the mean
// time of the operation over all ranks. A barrier follows each. The buffers of rank 0 and of the
// leaves are always the same; ranks between receive the data of their subtree into a new buffer.
func scatter(j *job) {
	n := cmp.Or(j.p.Bytes, 1<<10)
	s := &scatterTree{j: j, n: n, subtree: subtreeOf(j.Rank(), j.Size()), all: make([]byte, n*j.Size()), mine: make([]byte, n)}
	rounds := j.setIterations(map[Class]int{ClassT: 4, ClassS: 50, ClassW: 500, ClassA: 1000}[j.p.Class])
	if j.Rank() > 0 && s.subtree > 1 {
		s.between = newPackedBuffers(rounds, n*s.subtree)
	}
	m := &measurement{job: j, operation: &operation{
		group: j.newGroup(1), op: coll.Scatter,
		prepare: func(round int) {
			for to := 0; j.Rank() == 0 && to < j.Size(); to++ {
				fill(s.all[to*n:][:n], j.messageKey(0, to, round))
			}
		},
		run: s.run,
		check: func(round int) {
			j.checkContents(s.mine, j.messageKey(0, j.Rank(), round), "part in round %d", round)
		},
	}, algorithms: []*coll.Algorithm{nil}}
	j.addFigure(fmt.Sprintf("scatter %d B", n), j.times(m.run(rounds)[0]).Mean.Seconds()*1e6, "us")
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

// run performs one scatter from rank 0 along a binomial tree. This rank receives the blocks of its subtree
// from its parent, keeps its own, and sends each child the blocks of the child's subtree, largest subtree first.
func (s *scatterTree) run(round int) error {
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
	return nil
}
