package work

import "slices"

// sluSize has the number of block rows, the percentage of blocks that exist, and the numbers of
// right-hand sides and solves.
type sluSize struct{ blocks, percent, nrhs, solves int }

// sluMatrix is a sparse lower triangular matrix of blocks, distributed on a grid of ranks
// by row and column. Its blocks and their contents follow from the seed.
type sluMatrix struct {
	seed          uint64
	size          sluSize
	rows, columns int // of the grid of ranks
	rank          int
}

// ownerOf is the rank that has a block.
func (m *sluMatrix) ownerOf(row, column int) int {
	return row%m.rows*m.columns + column%m.columns
}

// width is the number of unknowns of a block: most have 1 to 12, and one in twenty 64 to 191.
func (m *sluMatrix) width(b int) int {
	draw := key(m.seed, 1, uint64(b))
	if draw%20 == 0 {
		return 64 + int(draw>>8%128)
	}
	return 1 + int(draw>>8%12)
}

// has reports whether a block below the diagonal exists.
func (m *sluMatrix) has(row, column int) bool {
	return column < row && int(key(m.seed, 2, uint64(row), uint64(column))%100) < m.size.percent
}

// columnsIn returns the columns of the blocks of a row that are left of the diagonal.
func (m *sluMatrix) columnsIn(row int) (columns []int) {
	for c := range row {
		if m.has(row, c) {
			columns = append(columns, c)
		}
	}
	return columns
}

// rowsIn returns the rows of the blocks of a column that are below the diagonal.
func (m *sluMatrix) rowsIn(column int) (rows []int) {
	for r := column + 1; r < m.size.blocks; r++ {
		if m.has(r, column) {
			rows = append(rows, r)
		}
	}
	return rows
}

// ownersOfRow returns the ranks with blocks in a row, and how many this rank has.
func (m *sluMatrix) ownersOfRow(row int) (ranks []int, mine int) {
	for _, c := range m.columnsIn(row) {
		ranks = append(ranks, m.ownerOf(row, c))
		if m.ownerOf(row, c) == m.rank {
			mine++
		}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks), mine
}

// usersOfColumn returns the ranks with blocks in a column: they need its part of the solution.
func (m *sluMatrix) usersOfColumn(column int) (ranks []int) {
	for _, r := range m.rowsIn(column) {
		ranks = append(ranks, m.ownerOf(r, column))
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// at is an element of a block. Elements are small, therefore errors do not grow; the diagonal is 1.
func (m *sluMatrix) at(row, column, i, k int) float64 {
	return uniform(mix(key(m.seed, uint64(row), uint64(column))+uint64(i<<20|k))) / 64
}

// addProduct adds the product of a block and x, the part of the solution for its column, to sum. A
// diagonal block is unit lower triangular: addProduct uses only its elements below the diagonal.
func (m *sluMatrix) addProduct(sum []float64, row, column int, x []float64) {
	for i := range m.width(row) {
		end := m.width(column)
		if row == column { // only the elements below the diagonal
			end = i
		}
		for k := range end {
			a := m.at(row, column, i, k)
			for r := range m.size.nrhs {
				sum[i*m.size.nrhs+r] += a * x[k*m.size.nrhs+r]
			}
		}
	}
}

// solveDiagonal returns the unknowns of a diagonal block, for its right-hand sides.
func (m *sluMatrix) solveDiagonal(b int, rhs []float64) []float64 {
	x := slices.Clone(rhs)
	for i := range m.width(b) {
		for k := range i {
			a := m.at(b, b, i, k)
			for r := range m.size.nrhs {
				x[i*m.size.nrhs+r] -= a * x[k*m.size.nrhs+r]
			}
		}
	}
	return x
}

// exact is the exact solution, from which a right-hand side is computed.
func (m *sluMatrix) exact(b, solve int) []float64 {
	x := make([]float64, m.width(b)*m.size.nrhs)
	for i := range x {
		x[i] = uniform(key(m.seed, 3, uint64(solve), uint64(b), uint64(i)))
	}
	return x
}

// rightHandSide is block b of the right-hand side: row b of the lower triangular matrix times the
// exact solution. The diagonal block is the identity plus the stored block.
func (m *sluMatrix) rightHandSide(b, solve int) []float64 {
	sum := m.exact(b, solve)
	m.addProduct(sum, b, b, slices.Clone(sum))
	for c := range b {
		if m.has(b, c) {
			m.addProduct(sum, b, c, m.exact(c, solve))
		}
	}
	return sum
}
