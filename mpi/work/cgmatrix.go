package work

import (
	"cmp"
	"slices"
)

// sparse is a block of a matrix, in compressed rows.
type sparse struct {
	from   []int // start of each row, and the end
	column []int
	value  []float64
}

// multiply computes y = block·x.
func (s *sparse) multiply(y, x []float64) {
	for row := range y {
		sum := 0.0
		for k := s.from[row]; k < s.from[row+1]; k++ {
			sum += s.value[k] * x[s.column[k]]
		}
		y[row] = sum
	}
}

// system is a rank's part of a matrix and its right side.
type system struct {
	block    sparse
	solution []float64 // of its columns
	right    []float64 // right side: matrix times solution, of its columns
	norm     float64   // bound of the operator norm
}

// cgContraction is the factor by which a step reduces the error. The diagonal is constant
// and twice as large as the rest of any row, therefore the condition number is at most 3,
// and (√3 − 1)/(√3 + 1) = 0.268.
const cgContraction = 0.27

// matrixBlock is a block of a matrix.
type matrixBlock struct{ firstRow, rows, firstCol, cols int }

// makeSystem generates a symmetric positive definite matrix with a few random elements per
// row, and returns a block of it. Every rank draws all elements.
func makeSystem(seed uint64, n, perRow int, b matrixBlock) system {
	type element struct {
		row, col int
		value    float64
	}
	var mine []element
	size := make([]float64, n) // sum of the off-diagonal elements, by row
	solution, product := make([]float64, n), make([]float64, n)
	for i := range n {
		solution[i] = 1 + unit(key(seed, uint64(i)))/2
	}
	add := func(row, col int, v float64) {
		product[row] += v * solution[col]
		if row, col := row-b.firstRow, col-b.firstCol; row >= 0 && row < b.rows && col >= 0 && col < b.cols {
			mine = append(mine, element{row, col, v})
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
	s := system{solution: solution[b.firstCol:][:b.cols], right: product[b.firstCol:][:b.cols], norm: 1.5 * diagonal}
	s.block.from = make([]int, b.rows+1)
	for _, e := range mine {
		s.block.from[e.row+1]++
		s.block.column, s.block.value = append(s.block.column, e.col), append(s.block.value, e.value)
	}
	for row := range b.rows {
		s.block.from[row+1] += s.block.from[row]
	}
	return s
}
