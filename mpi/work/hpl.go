package work

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/mpi"
)

// linpack solves a dense system by Gaussian elimination with pivoting, as HPL does, on a
// block-cyclic matrix. One column of ranks factors a panel of columns, with small messages
// for each pivot; the panel goes along the rows of ranks in a ring, with receives posted
// early; rows are swapped, and the rest of the matrix is updated. Most messages are small
// ones of pivots; those with the volume grow with the matrix (Sur 2006 §3.5, Fig. 11, Table 1).
func linpack(j *job) {
	size := map[Class]struct{ n, block int }{
		ClassT: {48, 4}, ClassS: {256, 16}, ClassW: {768, 32}, ClassA: {2048, 64},
	}[j.p.Class]
	for round := range j.setIterations(1) {
		d := newBlockCyclic(key(j.p.Seed, uint64(round)), size.n, size.block, j.Size(), j.Rank())
		h := &hpl{blockCyclic: d, j: j, x: make([]float64, size.n)}
		j.start()
		h.eliminate()
		h.substitute()
		j.stop()
		h.checkElimination()
		h.check()
	}
	longest := j.maxAll(j.elapsed.Seconds())
	n := float64(size.n)
	flops := 2*n*n*n/3 + 3*n*n/2 // HPL's count of operations
	j.addFigure("rate", flops*float64(j.iterations)/longest/1e9, "GFlop/s")
}

const (
	hplTagPivot = iota + 1
	hplTagPanel
	hplTagSwap
	hplTagTop
	hplTagSum
)

// hpl is a rank's part of the matrix. The right-hand side is an additional column.
type hpl struct {
	*blockCyclic
	j *job
	a []float64 // rows of this rank
	panelBuf
	x []float64
}

// panelBuf is the current panel.
type panelBuf struct {
	first, width int
	pivots       []int
	panel        []float64 // this rank's rows of it
	top          []float64 // rows of the panel's block in the rest of the matrix
}

// eliminate generates the matrix and eliminates it, panel by panel.
func (h *hpl) eliminate() {
	h.a = make([]float64, h.rows.owned*h.columns.owned)
	for i := range h.rows.owned {
		for k := range h.columns.owned {
			h.a[i*h.columns.owned+k] = h.element(h.rows.global(i), h.columns.global(k))
		}
	}
	for k := 0; k < h.n; k += h.block {
		h.eliminatePanel(k)
	}
}

// localRow is a row of this rank's part, by local index.
func (h *hpl) localRow(row int) []float64 { return h.a[row*h.columns.owned:][:h.columns.owned] }

// eliminatePanel eliminates the block of columns from first on, and updates the rest of the matrix.
func (h *hpl) eliminatePanel(first int) {
	defer annotateError("panel at column %d", first)
	h.first, h.width = first, min(h.block, h.n-first)
	h.pivots = make([]int, h.width)
	h.panel = make([]float64, h.rows.owned*h.width)
	if h.columns.me == h.columns.owner(first) {
		h.factorPanel()
	}
	h.forwardPanel()
	h.j.spendComputePart(1)
	trailingStart := h.columns.before(first + h.width)
	h.swapRows(trailingStart)
	h.solveTop(trailingStart)
	h.update(trailingStart)
}

// factorPanel eliminates within the panel, together with the other ranks of this process column,
// and copies the result to h.panel for forwardPanel.
func (h *hpl) factorPanel() {
	panelStart := h.columns.before(h.first)
	for c := range h.width {
		g := h.first + c
		row := h.swapPivot(g, panelStart)
		for i := h.rows.before(g + 1); i < h.rows.owned; i++ {
			below := h.localRow(i)[panelStart:][:h.width]
			below[c] /= row[c]
			for k := c + 1; k < h.width; k++ {
				below[k] -= below[c] * row[k]
			}
		}
	}
	for i := range h.rows.owned {
		copy(h.panel[i*h.width:][:h.width], h.localRow(i)[panelStart:])
	}
}

// swapPivot finds the row with the largest element of matrix column g, swaps it into place, and
// returns its part in the panel, which starts at the local column panelStart. Every rank of this
// process column sends its candidate to every other, and the row to be replaced if it owns that.
func (h *hpl) swapPivot(g, panelStart int) []float64 {
	c, w := g-h.first, h.width
	// The absolute value of the candidate and its row's index (both -1 without a candidate), w
	// elements of that row, w of the row to be replaced, and a checksum.
	mine := make([]float64, 3+2*w)
	mine[0], mine[1] = -1, -1
	for i := h.rows.before(g); i < h.rows.owned; i++ {
		if v := math.Abs(h.localRow(i)[panelStart+c]); v > mine[0] {
			mine[0], mine[1] = v, float64(h.rows.global(i))
			copy(mine[2:2+w], h.localRow(i)[panelStart:])
		}
	}
	if h.rows.me == h.rows.owner(g) {
		copy(mine[2+w:], h.localRow(h.rows.local(g))[panelStart:][:w])
	}
	mine[2+2*w] = checksum(mine[:2+2*w])
	all := h.exchangeInColumn(mine)
	best := 0
	for r := range all {
		// Candidates that are not chosen are checked only here.
		h.j.checkWithin(checksum(all[r][:2+2*w]), all[r][2+2*w], exactly,
			"checksum of the candidate of row %d of ranks for column %d", r, g)
		if all[r][0] > all[best][0] || all[r][0] == all[best][0] && all[r][1] < all[best][1] {
			best = r
		}
	}
	if all[best][0] <= 0 || h.rows.owner(int(all[best][1])) != best || int(all[best][1]) < g {
		h.j.failVerification(fmt.Sprintf("a row from %d on, of row %d of ranks", g, best), all[best][:2], "pivot of column %d", g)
	}
	p := int(all[best][1])
	h.pivots[c] = p
	row := all[best][2 : 2+w]
	if h.rows.me == h.rows.owner(p) {
		copy(h.localRow(h.rows.local(p))[panelStart:], all[h.rows.owner(g)][2+w:2+2*w])
	}
	if h.rows.me == h.rows.owner(g) {
		copy(h.localRow(h.rows.local(g))[panelStart:], row)
	}
	return row
}

// checksum returns a checksum of numbers, of 52 bits, so that a float64 holds it exactly.
func checksum(numbers []float64) float64 {
	k := uint64(0)
	for _, x := range numbers {
		k = mix(k ^ math.Float64bits(x))
	}
	return float64(k >> 12)
}

// exchangeInColumn sends numbers to all ranks of this process column, and returns those of each.
func (h *hpl) exchangeInColumn(mine []float64) [][]float64 {
	n := 8 * len(mine)
	out, in := make([]byte, n), make([]byte, n*h.rows.owners)
	putFloats(out, mine)
	all := make([][]float64, h.rows.owners)
	rs := make([]*mpi.Request, h.rows.owners)
	for r := range h.rows.owners {
		if r != h.rows.me {
			rs[r] = h.j.Irecv(in[r*n:][:n], h.rankAt(r, h.columns.me), hplTagPivot)
		}
	}
	for r := range h.rows.owners {
		if r != h.rows.me {
			h.j.Send(out, h.rankAt(r, h.columns.me), hplTagPivot)
		}
	}
	h.j.waitAll(rs...)
	for r := range all {
		all[r] = mine
		if r != h.rows.me {
			all[r] = make([]float64, len(mine))
			getFloats(all[r], in[r*n:])
		}
	}
	return all
}

// forwardPanel passes the panel and its pivots along the process row, from one rank to the next.
func (h *hpl) forwardPanel() {
	from := h.rows.before(h.first)
	n := 8 * (h.width + (h.rows.owned-from)*h.width)
	buf := make([]byte, n)
	origin := h.columns.owner(h.first)
	if h.columns.me == origin {
		for c, p := range h.pivots {
			putFloats(buf[8*c:], []float64{float64(p)})
		}
		putFloats(buf[8*h.width:], h.panel[from*h.width:])
	} else {
		previous := h.rankAt(h.rows.me, (h.columns.me+h.columns.owners-1)%h.columns.owners)
		h.j.wait(h.j.Irecv(buf, previous, hplTagPanel))
		h.j.digestReceived(previous, buf)
		for c := range h.pivots {
			h.pivots[c] = int(getFloat(buf[8*c:]))
			if p := h.pivots[c]; p < h.first+c || p >= h.n {
				h.j.failVerification(fmt.Sprintf("%d to %d", h.first+c, h.n-1), p, "pivot of column %d", h.first+c)
			}
		}
		getFloats(h.panel[from*h.width:], buf[8*h.width:])
	}
	if next := (h.columns.me + 1) % h.columns.owners; next != origin {
		h.j.sendWithDigest(buf, h.rankAt(h.rows.me, next), hplTagPanel)
	}
}

// blockCyclic is an n by n+1 matrix in block-cyclic distribution on a grid of ranks.
type blockCyclic struct {
	seed          uint64
	n, block      int
	rank          int
	rows, columns cyclicAxis
}

// newBlockCyclic returns a rank's part of an n × n matrix with the right-hand side as column n.
// The grid of ranks is as square as possible.
func newBlockCyclic(seed uint64, n, block, ranks, rank int) *blockCyclic {
	rows, columns := rectangle(ranks)
	return &blockCyclic{
		seed: seed, n: n, block: block, rank: rank,
		rows: newCyclicAxis(n, block, rows, rank/columns), columns: newCyclicAxis(n+1, block, columns, rank%columns),
	}
}

// element is an element of the initial matrix.
func (d *blockCyclic) element(row, column int) float64 {
	return uniform(key(d.seed, uint64(row), uint64(column)))
}

// rankAt is the rank at a row and a column of the grid of ranks.
func (d *blockCyclic) rankAt(row, column int) int { return row*d.columns.owners + column }

// cyclicAxis is the distribution of the rows, or of the columns, of a matrix among the rows or
// columns of a grid of ranks, its owners: blocks go to the owners in turn.
type cyclicAxis struct {
	block  int
	owners int
	me     int // index of this rank's row or column among the owners
	owned  int // how many rows or columns this rank has
}

// newCyclicAxis distributes the blocks of n indexes cyclically among owners; this rank is me.
func newCyclicAxis(n, block, owners, me int) cyclicAxis {
	a := cyclicAxis{block: block, owners: owners, me: me}
	a.owned = a.before(n)
	return a
}

// owner is the owner of index g of the matrix.
func (a *cyclicAxis) owner(g int) int { return g / a.block % a.owners }

// local is the index of g among those of its owner.
func (a *cyclicAxis) local(g int) int { return g/(a.block*a.owners)*a.block + g%a.block }

// global is the index in the matrix of this rank's local index.
func (a *cyclicAxis) global(local int) int {
	return (local/a.block*a.owners+a.me)*a.block + local%a.block
}

// before is how many indexes below g this rank owns: the local index of its first one from g on.
func (a *cyclicAxis) before(g int) int {
	blocks, rest := g/a.block, g%a.block
	n := blocks / a.owners * a.block
	switch partialOwner := blocks % a.owners; {
	case a.me < partialOwner:
		n += a.block
	case a.me == partialOwner:
		n += rest
	}
	return n
}
