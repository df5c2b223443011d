package work

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// triangularSolve solves with a sparse triangular matrix as SuperLU_DIST does: blocks
// are dealt out on a grid of ranks, and who has a block does what the messages that come
// make possible. Nobody knows in what order they come, so that receives are of any source
// and any tag. Messages come in bursts and up to a third of them unexpected; 94 % and
// more are below 2 KB, and a few have most of the volume (Survey §3.3, Table 2, Fig. 7).
func triangularSolve() *Workload {
	return runner(&Workload{
		Name: "superlu", Title: "message-driven solution of a sparse triangular system (SuperLU)", Paper: "Survey §3.3, Table 2, Fig. 7",
		MinRanks: 1, RankRule: AnyCount,
	}, func(j *job) error {
		size := map[Class]sluSize{
			ClassT: {blocks: 40, percent: 30, rights: 2, solves: 2},
			ClassS: {blocks: 120, percent: 20, rights: 4, solves: 5},
			ClassW: {blocks: 300, percent: 10, rights: 4, solves: 10},
			ClassA: {blocks: 600, percent: 8, rights: 8, solves: 20},
		}[j.p.Class]
		s := newSLU(j, size)
		for solve := range j.steps(size.solves) {
			s.reset(solve)
			if err := j.start(); err != nil {
				return err
			}
			if err := s.solve(); err != nil {
				return fmt.Errorf("solution %d: %w", solve, err)
			}
			j.stop()
			if err := s.check(solve); err != nil {
				return err
			}
		}
		messages, err := j.sum(float64(s.received))
		j.figure("messages", messages, "")
		return err
	})
}

// Kinds of messages: a part of the solution, for those who have blocks of its column, or
// what a rank's blocks of a row come to, for who has the row's diagonal. Tags tell them
// and the block.
const (
	sluSolution = iota
	sluSum
	sluKinds
)

// slu is a rank's part of a solution.
type slu struct {
	*sluMatrix
	j        *job
	expected int // messages
	received int
	inRow    map[int]int // blocks of a row that this rank has not yet worked on
	toSolve  map[int]int // ranks whose sums for a diagonal have not come
	sums     map[int][]float64
	right    map[int][]float64 // of this rank's diagonals
	x        map[int][]float64
	in       []byte
	sends    []*mpi.Request
}

func newSLU(j *job, size sluSize) *slu {
	s := &slu{sluMatrix: newSLUMatrix(j.p.Seed, size, j.Size(), j.Rank()), j: j}
	widest := 0
	for b := range size.blocks {
		widest = max(widest, s.width(b))
	}
	s.in = make([]byte, 8*widest*size.rights)
	return s
}

// reset begins with other right sides.
func (s *slu) reset(solve int) {
	s.inRow, s.toSolve = map[int]int{}, map[int]int{}
	s.sums, s.right, s.x = map[int][]float64{}, map[int][]float64{}, map[int][]float64{}
	s.expected = 0
	for b := range s.size.blocks {
		if n := len(s.rowBlocks(b)); n > 0 {
			s.inRow[b] = n
			s.sums[b] = make([]float64, s.width(b)*s.size.rights)
		}
		if s.ownerOf(b, b) != s.rank {
			if len(s.columnBlocks(b)) > 0 {
				s.expected++
			}
			continue
		}
		s.toSolve[b] = len(s.contributors(b))
		for _, rank := range s.contributors(b) {
			if rank != s.rank {
				s.expected++
			}
		}
		s.right[b] = s.rightSide(b, solve)
	}
}

// solve begins with diagonals that wait for nobody, and then follows the messages.
func (s *slu) solve() error {
	s.sends = s.sends[:0]
	var free []int
	for b := range s.size.blocks {
		if n, mine := s.toSolve[b]; mine && n == 0 {
			free = append(free, b) // what these make free in turn is solved with them
		}
	}
	for _, b := range free {
		if err := s.solveBlock(b); err != nil {
			return err
		}
	}
	for range s.expected {
		st, err := s.j.Recv(s.in, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		s.received++
		s.j.came(st.Source, s.in[:st.Count])
		b, kind := st.Tag/sluKinds, st.Tag%sluKinds
		if err := s.expects(b, kind, st); err != nil {
			return err
		}
		xs := make([]float64, s.width(b)*s.size.rights)
		getFloats(xs, s.in)
		if kind == sluSolution {
			err = s.apply(b, xs)
		} else {
			err = s.contribute(b, xs)
		}
		if err != nil {
			return err
		}
	}
	return s.j.waitAll(s.sends...)
}

// expects checks that a message is one that can come to this rank.
func (s *slu) expects(b, kind int, st mpi.Status) error {
	if b >= s.size.blocks {
		return s.j.wrong(fmt.Sprintf("a block below %d", s.size.blocks), b, "tag %d from rank %d", st.Tag, st.Source)
	}
	from := s.ownerOf(b, b)
	if kind == sluSum {
		from = st.Source // any of its row
		if s.ownerOf(b, b) != s.rank {
			return s.j.wrong(fmt.Sprintf("for rank %d", s.ownerOf(b, b)), "for this", "sum of block %d from rank %d", b, st.Source)
		}
	}
	if err := s.j.same(uint64(from), uint64(st.Source), "source of the solution of block %d", b); err != nil {
		return err
	}
	return s.j.same(uint64(8*s.width(b)*s.size.rights), uint64(st.Count), "bytes of block %d from rank %d", b, st.Source)
}

// solveBlock solves a diagonal block, and hands the solution to who needs it.
func (s *slu) solveBlock(b int) error {
	s.x[b] = s.solveDiagonal(b, s.right[b])
	buf := make([]byte, 8*len(s.x[b]))
	putFloats(buf, s.x[b])
	for _, rank := range s.needers(b) {
		if rank == s.rank {
			continue
		}
		if err := s.send(buf, rank, b*sluKinds+sluSolution); err != nil {
			return err
		}
	}
	return s.apply(b, s.x[b])
}

// apply works on this rank's blocks of a column. Rows of which that was the last go to
// who has their diagonal.
func (s *slu) apply(column int, x []float64) error {
	s.j.compute(s.size.blocks)
	for _, row := range s.columnBlocks(column) {
		s.addProduct(s.sums[row], row, column, x)
		if s.inRow[row]--; s.inRow[row] > 0 {
			continue
		}
		owner := s.ownerOf(row, row)
		if owner == s.rank {
			if err := s.contribute(row, s.sums[row]); err != nil {
				return err
			}
			continue
		}
		buf := make([]byte, 8*len(s.sums[row]))
		putFloats(buf, s.sums[row])
		if err := s.send(buf, owner, row*sluKinds+sluSum); err != nil {
			return err
		}
	}
	return nil
}

// contribute takes a sum off the right side of a diagonal block.
func (s *slu) contribute(b int, sum []float64) error {
	for i := range sum {
		s.right[b][i] -= sum[i]
	}
	if s.toSolve[b]--; s.toSolve[b] == 0 {
		return s.solveBlock(b)
	}
	return nil
}

func (s *slu) send(buf []byte, to, tag int) error {
	s.j.left(to, buf)
	r, err := s.j.Isend(buf, to, tag)
	s.sends = append(s.sends, r)
	return err
}

// check compares the solution of this rank's diagonals.
func (s *slu) check(solve int) error {
	for b := range s.size.blocks {
		if s.ownerOf(b, b) != s.rank {
			continue
		}
		want := s.wanted(b, solve)
		if err := s.j.same(uint64(len(want)), uint64(len(s.x[b])), "unknowns of block %d that were solved for", b); err != nil {
			return err
		}
		for i := range want {
			if !s.j.alike(want[i], s.x[b][i], 1e-9) {
				return s.j.wrong(want[i], s.x[b][i], "unknown %d of block %d, solution %d", i, b, solve)
			}
		}
	}
	return nil
}
