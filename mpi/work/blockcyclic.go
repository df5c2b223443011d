package work

// blockCyclic is a matrix of n rows and n + 1 columns in block-cyclic distribution on a
// grid of ranks.
type blockCyclic struct {
	seed          uint64
	n, block      int
	rank          int
	rows, columns cyclicAxis
}

// newBlockCyclic returns a rank's part of an n × n matrix with the right side as column n. The
// grid of ranks is as square as possible.
func newBlockCyclic(seed uint64, n, block, ranks, rank int) *blockCyclic {
	rows, columns := rectangle(ranks)
	return &blockCyclic{
		seed: seed, n: n, block: block, rank: rank,
		rows: newCyclicAxis(n, block, rows, rank/columns), columns: newCyclicAxis(n+1, block, columns, rank%columns),
	}
}

// element is an element of the initial matrix.
func (d *blockCyclic) element(row, column int) float64 {
	return unit(key(d.seed, uint64(row), uint64(column)))
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

// newCyclicAxis distributes the blocks of n indexes cyclically among the owners; this rank is
// owner me.
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

// before is how many indexes below g this rank owns, which is the local index of its first one
// from g on.
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
