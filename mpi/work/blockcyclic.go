package work

// blockCyclic is a matrix of n rows and n + 1 columns in block-cyclic distribution on a
// grid of ranks.
type blockCyclic struct {
	seed                uint64
	n, block            int
	rows, columns       int // of the grid of ranks
	rank, row, column   int
	ownRows, ownColumns int
}

func newBlockCyclic(seed uint64, n, block, ranks, rank int) *blockCyclic {
	d := &blockCyclic{seed: seed, n: n, block: block, rank: rank}
	d.rows, d.columns = rectangle(ranks)
	d.row, d.column = rank/d.columns, rank%d.columns
	d.ownRows, d.ownColumns = d.rowsBefore(n), d.columnsBefore(n+1)
	return d
}

// element is an element of the initial matrix.
func (d *blockCyclic) element(row, column int) float64 {
	return unit(key(d.seed, uint64(row), uint64(column)))
}

func (d *blockCyclic) rankAt(row, column int) int { return row*d.columns + column }

// rowOwner is the row of ranks that owns a row, and localRow its index there.
func (d *blockCyclic) rowOwner(g int) int { return g / d.block % d.rows }
func (d *blockCyclic) localRow(g int) int { return g/(d.block*d.rows)*d.block + g%d.block }

func (d *blockCyclic) columnOwner(g int) int { return g / d.block % d.columns }
func (d *blockCyclic) localColumn(g int) int { return g/(d.block*d.columns)*d.block + g%d.block }

// globalRow is the row of a local index.
func (d *blockCyclic) globalRow(at int) int {
	return (at/d.block*d.rows+d.row)*d.block + at%d.block
}

func (d *blockCyclic) globalColumn(at int) int {
	return (at/d.block*d.columns+d.column)*d.block + at%d.block
}

// rowsBefore is the number of rows of this rank before row g, which is the local index of
// its first row from g on.
func (d *blockCyclic) rowsBefore(g int) int { return ownedBefore(g, d.block, d.rows, d.row) }

func (d *blockCyclic) columnsBefore(g int) int { return ownedBefore(g, d.block, d.columns, d.column) }

// ownedBefore is how many of the first g rows or columns belong to owner me.
func ownedBefore(g, block, owners, me int) int {
	blocks, rest := g/block, g%block
	n := blocks / owners * block
	switch partialOwner := blocks % owners; {
	case me < partialOwner:
		n += block
	case me == partialOwner:
		n += rest
	}
	return n
}
