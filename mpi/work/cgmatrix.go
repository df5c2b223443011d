package work

import (
	"cmp"
	"slices"
)

// sparse is a block of a matrix, by rows.
type sparse struct {
	from   []int // where a row begins; one more for the end
	column []int
	value  []float64
}

// multiply puts the block times x into y.
func (s *sparse) multiply(y, x []float64) {
	for row := range y {
		sum := 0.0
		for k := s.from[row]; k < s.from[row+1]; k++ {
			sum += s.value[k] * x[s.column[k]]
		}
		y[row] = sum
	}
}

// system is a rank's part of a matrix and of what it is to be solved for.
type system struct {
	block    sparse
	solution []float64 // of its columns
	product  []float64 // the matrix times the solution, of its columns
	norm     float64   // the matrix makes no vector longer than by this
}

// cgContraction is by how much a step of the method reduces the error, for matrices of
// makeMatrix: the diagonal is the same everywhere, and twice as large as the rest of any
// row, so that the largest eigenvalue is no more than three times the smallest, and
// (√3 − 1)/(√3 + 1) = 0.268.
const cgContraction = 0.27

// makeMatrix makes a symmetric positive matrix with a few elements at chance in every
// row, and returns a block of it. Every rank draws all elements, and keeps its own.
func makeMatrix(seed uint64, n, perRow, firstRow, rows, firstCol, cols int) system {
	type element struct {
		row, col int
		value    float64
	}
	var mine []element
	size := make([]float64, n) // of all beside the diagonal, by row
	solution, product := make([]float64, n), make([]float64, n)
	for i := range n {
		solution[i] = 1 + unit(key(seed, uint64(i)))/2
	}
	add := func(row, col int, v float64) {
		product[row] += v * solution[col]
		if row >= firstRow && row < firstRow+rows && col >= firstCol && col < firstCol+cols {
			mine = append(mine, element{row - firstRow, col - firstCol, v})
		}
	}
	for i := range n {
		for k := range perRow {
			draw := key(seed, uint64(i), uint64(k))
			other, v := int(draw%uint64(n)), unit(mix(draw))
			if other == i {
				continue
			}
			add(i, other, v)
			add(other, i, v)
			size[i] += max(v, -v)
			size[other] += max(v, -v)
		}
	}
	diagonal := 1 + 2*slices.Max(size)
	for i := range n {
		add(i, i, diagonal)
	}
	slices.SortStableFunc(mine, func(a, b element) int { return cmp.Or(cmp.Compare(a.row, b.row), cmp.Compare(a.col, b.col)) })
	s := system{solution: solution[firstCol:][:cols], product: product[firstCol:][:cols], norm: 1.5 * diagonal}
	s.block.from = make([]int, rows+1)
	for _, e := range mine {
		s.block.from[e.row+1]++
		s.block.column, s.block.value = append(s.block.column, e.col), append(s.block.value, e.value)
	}
	for row := range rows {
		s.block.from[row+1] += s.block.from[row]
	}
	return s
}
