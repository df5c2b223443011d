package work

// dealt is a matrix of n rows and n + 1 columns whose blocks are dealt out on a grid of
// ranks.
type dealt struct {
	seed                uint64
	n, block            int
	rows, columns       int // of ranks
	rank, row, column   int
	ownRows, ownColumns int
}

func newDealt(seed uint64, n, block, ranks, rank int) *dealt {
	d := &dealt{seed: seed, n: n, block: block, rank: rank}
	d.rows, d.columns = rectangle(ranks)
	d.row, d.column = rank/d.columns, rank%d.columns
	d.ownRows, d.ownColumns = d.rowsFrom(n), d.columnsFrom(n+1)
	return d
}

// element is one of the matrix as it is at first.
func (d *dealt) element(row, column int) float64 {
	return unit(key(d.seed, uint64(row), uint64(column)))
}

func (d *dealt) rankAt(row, column int) int { return row*d.columns + column }

// rowOwner is the row of ranks that has a row, and rowAt the place there.
func (d *dealt) rowOwner(g int) int { return g / d.block % d.rows }
func (d *dealt) rowAt(g int) int    { return g/(d.block*d.rows)*d.block + g%d.block }

func (d *dealt) columnOwner(g int) int { return g / d.block % d.columns }
func (d *dealt) columnAt(g int) int    { return g/(d.block*d.columns)*d.block + g%d.block }

// rowOf is the row at a place of this rank's.
func (d *dealt) rowOf(at int) int {
	return (at/d.block*d.rows+d.row)*d.block + at%d.block
}

func (d *dealt) columnOf(at int) int {
	return (at/d.block*d.columns+d.column)*d.block + at%d.block
}

// rowsFrom is the first place of this rank's with a row that is not before g; so many
// are before it.
func (d *dealt) rowsFrom(g int) int { return before(g, d.block, d.rows, d.row) }

func (d *dealt) columnsFrom(g int) int { return before(g, d.block, d.columns, d.column) }

// before is how many of the first g are one's own, if blocks are dealt out to several.
func before(g, block, owners, me int) int {
	blocks, over := g/block, g%block
	n := blocks / owners * block
	switch mine := blocks % owners; {
	case me < mine:
		n += block
	case me == mine:
		n += over
	}
	return n
}
