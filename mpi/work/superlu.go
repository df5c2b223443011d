package work

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// triangularSolve solves with a sparse triangular matrix as SuperLU_DIST does: blocks are
// distributed on a grid of ranks, and received messages determine the next operation. Their
// order is unknown, therefore receives are of any source and any tag. Messages come in
// bursts, and up to a third of them are unexpected; 94 % and more are below 2 KB, and a few
// have most of the volume (Sur 2006 §3.3, Table 2, Fig. 7).
func triangularSolve(j *job) {
	size := map[Class]sluSize{
		ClassT: {blocks: 40, percent: 30, nrhs: 2, solves: 2},
		ClassS: {blocks: 120, percent: 20, nrhs: 4, solves: 5},
		ClassW: {blocks: 300, percent: 10, nrhs: 4, solves: 10},
		ClassA: {blocks: 600, percent: 8, nrhs: 8, solves: 20},
	}[j.p.Class]
	s := newSLU(j, size)
	for solve := range j.setIterations(size.solves) {
		s.reset(solve)
		j.start()
		s.solve(solve)
		j.stop()
		s.check(solve)
	}
	j.addFigure("messages", j.sumAll(float64(s.received)), "")
}

// Kinds of messages: a part of the solution, for ranks with blocks of its column, or the sum of a
// rank's blocks of a row, for the diagonal's owner. Tags encode kind and block.
const (
	sluSolution = iota
	sluSum
	sluKinds
)

// slu is a rank's part of a triangular solve.
type slu struct {
	*sluMatrix
	j          *job
	expected   int // messages
	received   int
	blocksLeft map[int]int // blocks of a row that are not yet applied
	sumsLeft   map[int]int // ranks whose sums for a diagonal are missing
	sums       map[int][]float64
	rhs        map[int][]float64 // right-hand sides of this rank's diagonals
	x          map[int][]float64
	in         []byte
	sends      []*mpi.Request
}

// newSLU returns a rank's part of a matrix, with a receive buffer for the largest message: the
// unknowns of the widest block, for each of the nrhs right-hand sides.
func newSLU(j *job, size sluSize) *slu {
	s := &slu{sluMatrix: &sluMatrix{seed: j.p.Seed, size: size, rank: j.Rank()}, j: j}
	s.rows, s.columns = rectangle(j.Size())
	widest := 0
	for b := range size.blocks {
		widest = max(widest, s.width(b))
	}
	s.in = make([]byte, 8*widest*size.nrhs)
	return s
}

// reset prepares another solve: it computes the right-hand side, and counts, for each block row,
// this rank's blocks (blocksLeft) and the ranks whose sums its diagonal block needs (sumsLeft), and
// the messages that this rank will receive.
func (s *slu) reset(solve int) {
	s.blocksLeft, s.sumsLeft = map[int]int{}, map[int]int{}
	s.sums, s.rhs, s.x = map[int][]float64{}, map[int][]float64{}, map[int][]float64{}
	s.expected = 0
	for b := range s.size.blocks {
		owners, mine := s.ownersOfRow(b)
		if mine > 0 {
			s.blocksLeft[b] = mine
			s.sums[b] = make([]float64, s.width(b)*s.size.nrhs)
		}
		if s.ownerOf(b, b) != s.rank {
			if slices.Contains(s.usersOfColumn(b), s.rank) {
				s.expected++
			}
			continue
		}
		s.sumsLeft[b] = len(owners)
		s.expected += len(owners) - min(mine, 1) // not from this rank
		s.rhs[b] = s.rightHandSide(b, solve)
	}
}

// solve does a triangular solve. It solves diagonal blocks that need no messages first, then the
// others as the messages that they need arrive.
func (s *slu) solve(number int) {
	defer annotateError("solution %d", number)
	s.sends = s.sends[:0]
	var ready []int
	for b := range s.size.blocks {
		if n, mine := s.sumsLeft[b]; mine && n == 0 {
			ready = append(ready, b) // solveBlock also solves blocks that wait only for this one
		}
	}
	for _, b := range ready {
		s.solveBlock(b)
	}
	for range s.expected {
		st := s.j.Recv(s.in, mpi.AnySource, mpi.AnyTag)
		s.received++
		s.j.digestReceived(st.Source, s.in[:st.Count])
		b, kind := st.Tag/sluKinds, st.Tag%sluKinds
		s.checkExpected(b, kind, st)
		xs := make([]float64, s.width(b)*s.size.nrhs)
		getFloats(xs, s.in)
		if kind == sluSolution {
			s.apply(b, xs)
		} else {
			s.subtractSum(b, xs)
		}
	}
	s.j.waitAll(s.sends...)
}

// checkExpected checks the length of a message about block b. A solution must come from the owner of
// the diagonal block; a sum may come from any rank, but must be sent to that owner.
func (s *slu) checkExpected(b, kind int, st mpi.Status) {
	if b >= s.size.blocks {
		s.j.failVerification(fmt.Sprintf("a block below %d", s.size.blocks), b, "tag %d from rank %d", st.Tag, st.Source)
	}
	owner := s.ownerOf(b, b)
	if kind == sluSum {
		s.j.checkEqual(uint64(owner), uint64(s.rank), "destination of a sum of block %d from rank %d", b, st.Source)
	} else {
		s.j.checkEqual(uint64(owner), uint64(st.Source), "source of the solution of block %d", b)
	}
	s.j.checkEqual(uint64(8*s.width(b)*s.size.nrhs), uint64(st.Count), "bytes of block %d from rank %d", b, st.Source)
}

// solveBlock solves a diagonal block, and sends the solution to the ranks that need it.
func (s *slu) solveBlock(b int) {
	s.x[b] = s.solveDiagonal(b, s.rhs[b])
	buf := make([]byte, 8*len(s.x[b]))
	putFloats(buf, s.x[b])
	for _, rank := range s.usersOfColumn(b) {
		if rank != s.rank {
			s.send(buf, rank, b*sluKinds+sluSolution)
		}
	}
	s.apply(b, s.x[b])
}

// apply multiplies this rank's blocks of a column by x, and adds the products to the sums of their
// rows. The sum of a completed row goes to the owner of the row's diagonal block.
func (s *slu) apply(column int, x []float64) {
	s.j.spendComputePart(s.size.blocks) // spends the computing time of one block
	for _, row := range s.rowsIn(column) {
		if s.ownerOf(row, column) != s.rank {
			continue
		}
		s.addProduct(s.sums[row], row, column, x)
		if s.blocksLeft[row]--; s.blocksLeft[row] > 0 {
			continue
		}
		owner := s.ownerOf(row, row)
		if owner == s.rank {
			s.subtractSum(row, s.sums[row])
			continue
		}
		buf := make([]byte, 8*len(s.sums[row]))
		putFloats(buf, s.sums[row])
		s.send(buf, owner, row*sluKinds+sluSum)
	}
}

// subtractSum subtracts the sum of a rank from the right-hand side of a diagonal block, and solves
// the block after the last sum.
func (s *slu) subtractSum(b int, sum []float64) {
	for i := range sum {
		s.rhs[b][i] -= sum[i]
	}
	if s.sumsLeft[b]--; s.sumsLeft[b] == 0 {
		s.solveBlock(b)
	}
}

// send starts to send a message. solve waits for it at the end.
func (s *slu) send(buf []byte, to, tag int) {
	s.j.digestSent(to, buf)
	s.sends = append(s.sends, s.j.Isend(buf, to, tag))
}

// check compares the solution of this rank's diagonal blocks with the exact one.
func (s *slu) check(solve int) {
	for b := range s.size.blocks {
		if s.ownerOf(b, b) != s.rank {
			continue
		}
		want := s.exact(b, solve)
		s.j.checkEqual(uint64(len(want)), uint64(len(s.x[b])), "unknowns of block %d that were solved for", b)
		for i := range want {
			s.j.checkWithin(want[i], s.x[b][i], 1e-9, "unknown %d of block %d, solution %d", i, b, solve)
		}
	}
}
