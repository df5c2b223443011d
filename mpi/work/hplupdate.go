package work

import "math"

// swapRows swaps each row of the panel with its pivot row in the trailing matrix, which begins at
// the local column trailingStart. If two ranks of this process column own the rows, they exchange
// them.
func (h *hpl) swapRows(trailingStart int) {
	n := h.columns.owned - trailingStart
	if n == 0 {
		return
	}
	buffers := newFloatBuffers(n)
	for i, pivot := range h.pivots {
		current := h.first + i
		currentOwner, pivotOwner := h.rows.owner(current), h.rows.owner(pivot)
		switch me := h.rows.me; {
		case current == pivot || me != currentOwner && me != pivotOwner:
		case currentOwner == pivotOwner:
			x, y := h.localRow(h.rows.local(current))[trailingStart:], h.localRow(h.rows.local(pivot))[trailingStart:]
			for k := range x {
				x[k], y[k] = y[k], x[k]
			}
		default:
			row, peer := current, pivotOwner
			if me == pivotOwner {
				row, peer = pivot, currentOwner
			}
			values := h.localRow(h.rows.local(row))[trailingStart:]
			buffers.exchange(h.j, values, values, h.rankAt(peer, h.columns.me), hplTagSwap)
		}
	}
}

// solveTop computes the panel's rows of the trailing matrix, which begins at the local column
// trailingStart, on the ranks that own these rows, and passes them down the process columns.
func (h *hpl) solveTop(trailingStart int) {
	n, w := h.columns.owned-trailingStart, h.width
	h.top = make([]float64, w*n)
	if n == 0 {
		return
	}
	origin := h.rows.owner(h.first)
	buf := make([]byte, 8*len(h.top))
	if h.rows.me == origin {
		at := h.rows.local(h.first)
		for i := range w {
			row := h.localRow(at + i)[trailingStart:]
			for k := range i {
				f := h.panel[(at+i)*w+k]
				for c, above := range h.top[k*n:][:n] {
					row[c] -= f * above
				}
			}
			copy(h.top[i*n:], row)
		}
		putFloats(buf, h.top)
	} else {
		h.j.recvWithDigest(buf, h.rankAt((h.rows.me+h.rows.owners-1)%h.rows.owners, h.columns.me), hplTagTop)
		getFloats(h.top, buf)
	}
	if next := (h.rows.me + 1) % h.rows.owners; next != origin {
		h.j.sendWithDigest(buf, h.rankAt(next, h.columns.me), hplTagTop)
	}
}

// update subtracts the product of the panel and the rows of solveTop from the rows below them in
// the trailing matrix, which begins at the local column trailingStart.
func (h *hpl) update(trailingStart int) {
	n, w := h.columns.owned-trailingStart, h.width
	for i := h.rows.before(h.first + w); i < h.rows.owned; i++ {
		row := h.localRow(i)[trailingStart:]
		for k, f := range h.panel[i*w:][:w] {
			for c, above := range h.top[k*n:][:n] {
				row[c] -= f * above
			}
		}
	}
}

// substitute solves for the unknowns, the last block first. The ranks of a process row sum the
// known part; the owner of the diagonal block solves it and sends the result to all ranks.
func (h *hpl) substitute() {
	defer annotateError("substitution")
	known := make([]float64, h.rows.owned) // known part of each row from this rank's columns
	for first := (h.n - 1) / h.block * h.block; first >= 0; first -= h.block {
		w := min(h.block, h.n-first)
		diagonal := h.rankAt(h.rows.owner(first), h.columns.owner(first))
		x := h.x[first:][:w]
		if h.rows.me == h.rows.owner(first) {
			h.solveBlock(first, w, x, known, diagonal)
		}
		buf := make([]byte, 8*w)
		putFloats(buf, x)
		if h.rank == diagonal {
			for to := range h.j.Size() { // the broadcast counts as a message to each rank
				h.j.digestSent(to, buf)
			}
		}
		h.j.Bcast(buf, diagonal)
		h.j.digestReceived(diagonal, buf)
		getFloats(x, buf)
		if h.columns.me == h.columns.owner(first) {
			c := h.columns.local(first)
			for i := range known {
				for k, v := range h.localRow(i)[c:][:w] {
					known[i] += v * x[k]
				}
			}
		}
	}
}

// solveBlock solves the w unknowns x from number first on: a diagonal block. The rank diagonal,
// which owns the block, solves it; the other ranks of its process row send it their parts of the
// right-hand side. known has, for each row of this rank, the sum of the terms of its columns whose
// unknowns are solved.
func (h *hpl) solveBlock(first, w int, x, known []float64, diagonal int) {
	at := h.rows.local(first)
	sum := make([]float64, w)
	for i := range sum {
		sum[i] = -known[at+i]
		if h.columns.me == h.columns.owner(h.n) { // column n is the right-hand side
			sum[i] += h.localRow(at + i)[h.columns.local(h.n)]
		}
	}
	buf := make([]byte, 8*w)
	if h.rank != diagonal {
		putFloats(buf, sum)
		h.j.sendWithDigest(buf, diagonal, hplTagSum)
		return
	}
	for c := range h.columns.owners {
		if c == h.columns.me {
			continue
		}
		h.j.recvWithDigest(buf, h.rankAt(h.rows.me, c), hplTagSum)
		for i := range sum {
			sum[i] += getFloat(buf[8*i:])
		}
	}
	c := h.columns.local(first)
	for i := w - 1; i >= 0; i-- {
		row := h.localRow(at + i)[c:][:w]
		for k := i + 1; k < w; k++ {
			sum[i] -= row[k] * x[k]
		}
		x[i] = sum[i] / row[i]
	}
}

// hplReference is the number of rows up to which each rank also eliminates the whole matrix.
const hplReference = 256

// checkElimination compares this rank's part of a small matrix, up to hplReference, with an
// elimination by one rank. They must be equal to the bit: the operations on an element and their
// order depend on blocks and pivots only.
func (h *hpl) checkElimination() {
	if h.n > hplReference {
		return
	}
	alone := *h.j
	alone.p.Compute = 0 // the check must not spend the modelled CPU time
	whole := &hpl{blockCyclic: newBlockCyclic(h.seed, h.n, h.block, 1, 0), j: &alone}
	whole.eliminate()
	for i := range h.rows.owned {
		for k, got := range h.localRow(i) {
			row, column := h.rows.global(i), h.columns.global(k)
			if want := whole.localRow(row)[column]; !h.j.withinBound(want, got, exactly) {
				h.j.failVerification(want, got, "eliminated matrix at row %d, column %d", row, column)
			}
		}
	}
}

// check evaluates the residuals of the equations, divided among ranks. The bound is HPL's: 16,
// scaled by the norms of the matrix, the solution and the right-hand side, which is at most 1.
func (h *hpl) check() {
	j := h.j
	xNorm, aNorm := 0.0, 0.0
	for _, x := range h.x {
		xNorm = max(xNorm, math.Abs(x))
	}
	residuals := make([]float64, 0, h.n/j.Size()+1)
	for i := j.Rank(); i < h.n; i += j.Size() {
		residual, rowSum := h.element(i, h.n), 0.0
		for k, x := range h.x {
			a := h.element(i, k)
			residual -= a * x
			rowSum += math.Abs(a)
		}
		residuals, aNorm = append(residuals, residual), max(aNorm, rowSum)
	}
	aNorm = j.maxAll(aNorm)
	const epsilon = 0x1p-53
	bound := 16 * epsilon * float64(h.n) * (aNorm*xNorm + 1)
	for i, r := range residuals {
		j.checkSmall(r, bound, "residual of equation %d", j.Rank()+i*j.Size())
	}
}
