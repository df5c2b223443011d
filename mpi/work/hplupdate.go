package work

import "math"

// swapRows does in the rest of the matrix what the panel's pivots have done in it: rows
// of two ranks of a column go both ways.
func (h *hpl) swapRows(rest int) error {
	n := h.ownColumns - rest
	if n == 0 {
		return nil
	}
	out, in := make([]byte, 8*n), make([]byte, 8*n)
	for c, p := range h.pivots {
		g := h.first + c
		a, b := h.rowOwner(g), h.rowOwner(p)
		switch {
		case g == p:
		case a == b && h.row == a:
			x, y := h.local(h.rowAt(g))[rest:], h.local(h.rowAt(p))[rest:]
			for i := range x {
				x[i], y[i] = y[i], x[i]
			}
		case a != b && (h.row == a || h.row == b):
			row, other := g, b
			if h.row == b {
				row, other = p, a
			}
			own := h.local(h.rowAt(row))[rest:]
			putFloats(out, own)
			if err := h.j.swap(out, in, h.rankAt(other, h.column), hplTagSwap); err != nil {
				return err
			}
			getFloats(own, in)
		}
	}
	return nil
}

// solveTop finishes the rows of the panel's block, by those ranks who have them, and
// passes them on down the columns of ranks.
func (h *hpl) solveTop(rest int) error {
	n, w := h.ownColumns-rest, h.width
	h.top = make([]float64, w*n)
	if n == 0 {
		return nil
	}
	origin := h.rowOwner(h.first)
	buf := make([]byte, 8*len(h.top))
	if h.row == origin {
		at := h.rowAt(h.first)
		for i := range w {
			row := h.local(at + i)[rest:]
			for k := range i {
				f := h.below[(at+i)*w+k]
				for c, above := range h.top[k*n:][:n] {
					row[c] -= f * above
				}
			}
			copy(h.top[i*n:], row)
		}
		putFloats(buf, h.top)
	} else {
		if _, err := h.j.Recv(buf, h.rankAt((h.row+h.rows-1)%h.rows, h.column), hplTagTop); err != nil {
			return err
		}
		h.j.came(h.rankAt((h.row+h.rows-1)%h.rows, h.column), buf)
		getFloats(h.top, buf)
	}
	if next := (h.row + 1) % h.rows; next != origin {
		h.j.left(h.rankAt(next, h.column), buf)
		return h.j.Send(buf, h.rankAt(next, h.column), hplTagTop)
	}
	return nil
}

// update takes the product of the panel and the top rows off the rest.
func (h *hpl) update(rest int) {
	n, w := h.ownColumns-rest, h.width
	for i := h.rowsFrom(h.first + w); i < h.ownRows; i++ {
		row := h.local(i)[rest:]
		for k, f := range h.below[i*w:][:w] {
			for c, above := range h.top[k*n:][:n] {
				row[c] -= f * above
			}
		}
	}
}

// substitute solves for the unknowns, the last block first. Ranks of a row add up what
// is known of it; who has the diagonal block solves it and tells everybody.
func (h *hpl) substitute() error {
	known := make([]float64, h.ownRows) // of each row, what this rank's columns come to
	for first := (h.n - 1) / h.block * h.block; first >= 0; first -= h.block {
		w := min(h.block, h.n-first)
		diagonal := h.rankAt(h.rowOwner(first), h.columnOwner(first))
		x := h.x[first:][:w]
		if h.row == h.rowOwner(first) {
			if err := h.solveBlock(first, w, x, known, diagonal); err != nil {
				return err
			}
		}
		buf := make([]byte, 8*w)
		putFloats(buf, x)
		for to := range h.j.Size() {
			if h.rank == diagonal {
				h.j.left(to, buf)
			}
		}
		if err := h.j.Bcast(buf, diagonal); err != nil {
			return err
		}
		h.j.came(diagonal, buf)
		getFloats(x, buf)
		if h.column == h.columnOwner(first) {
			c := h.columnAt(first)
			for i := range known {
				for k, v := range h.local(i)[c:][:w] {
					known[i] += v * x[k]
				}
			}
		}
	}
	return nil
}

func (h *hpl) solveBlock(first, w int, x, known []float64, diagonal int) error {
	at := h.rowAt(first)
	sum := make([]float64, w)
	for i := range sum {
		sum[i] = -known[at+i]
		if h.column == h.columnOwner(h.n) {
			sum[i] += h.local(at + i)[h.columnAt(h.n)]
		}
	}
	buf := make([]byte, 8*w)
	if h.rank != diagonal {
		putFloats(buf, sum)
		h.j.left(diagonal, buf)
		return h.j.Send(buf, diagonal, hplTagSum)
	}
	for c := range h.columns {
		if c == h.column {
			continue
		}
		if _, err := h.j.Recv(buf, h.rankAt(h.row, c), hplTagSum); err != nil {
			return err
		}
		h.j.came(h.rankAt(h.row, c), buf)
		for i := range sum {
			sum[i] += getFloat(buf[8*i:])
		}
	}
	c := h.columnAt(first)
	for i := w - 1; i >= 0; i-- {
		row := h.local(at + i)[c:][:w]
		for k := i + 1; k < w; k++ {
			sum[i] -= row[k] * x[k]
		}
		x[i] = sum[i] / row[i]
	}
	return nil
}

// hplReference is up to how many rows every rank eliminates the whole matrix too.
const hplReference = 256

// checkElimination compares this rank's part of the matrix with that of an elimination
// by one rank alone. They are the same to the bit: what is done to an element, and in
// what order, depends on blocks and pivots, and not on who has it.
func (h *hpl) checkElimination() error {
	if h.n > hplReference {
		return nil
	}
	alone := *h.j // has nobody to talk to, and takes no time for it
	alone.p.Compute = 0
	whole := &hpl{dealt: newDealt(h.seed, h.n, h.block, 1, 0), j: &alone}
	if err := whole.eliminate(); err != nil {
		return err
	}
	for i := range h.ownRows {
		for k, got := range h.local(i) {
			row, column := h.rowOf(i), h.columnOf(k)
			if want := whole.local(row)[column]; !h.j.alike(want, got, 0) {
				return h.j.wrong(want, got, "eliminated matrix at row %d, column %d", row, column)
			}
		}
	}
	return nil
}

// check puts the unknowns into the equations, which ranks divide among themselves. The
// bound is HPL's: 16, scaled by how large all of it is.
func (h *hpl) check() error {
	j := h.j
	largest, widest := 0.0, 0.0
	for _, x := range h.x {
		largest = max(largest, math.Abs(x))
	}
	left := make([]float64, 0, h.n/j.Size()+1)
	for i := j.Rank(); i < h.n; i += j.Size() {
		sum, size := h.element(i, h.n), 0.0
		for k, x := range h.x {
			a := h.element(i, k)
			sum -= a * x
			size += math.Abs(a)
		}
		left, widest = append(left, sum), max(widest, size)
	}
	widest, err := j.most(widest)
	if err != nil {
		return err
	}
	const epsilon = 0x1p-53
	bound := 16 * epsilon * float64(h.n) * (widest*largest + 1)
	for i, r := range left {
		if !j.alike(0, r, bound) {
			return j.wrong("less than "+formatFloat(bound), r, "what is left of equation %d", j.Rank()+i*j.Size())
		}
	}
	return nil
}
