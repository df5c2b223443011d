package coll

import "fmt"

// Op is a collective operation.
type Op uint8

// The operations. Those with blocks of different sizes (MPI_Scatterv, …) are the same operations with
// a Layout.
const (
	Barrier       Op = iota
	Bcast            // Out of the root to Out of all ranks
	Scatter          // the blocks of In at the root to Out of each rank
	Gather           // In of each rank to the blocks of Out at the root
	Allgather        // In of each rank to the blocks of Out at all ranks
	Alltoall         // block i of In to Out of rank i
	Reduce           // In of all ranks, combined, to Out at the root
	Allreduce        // In of all ranks, combined, to Out
	ReduceScatter    // block i of In of all ranks, combined, to Out of rank i
	Scan             // In of the ranks up to this one, combined, to Out
	Exscan           // In of the ranks before this one, combined, to Out; Out of rank 0 does not change
	NumOps
)

var opNames = [NumOps]string{
	"barrier", "bcast", "scatter", "gather", "allgather", "alltoall", "reduce", "allreduce", "reduce-scatter", "scan", "exscan",
}

// IsReduction reports whether the operation combines elements.
func (o Op) IsReduction() bool { return o >= Reduce && o < NumOps }

// String returns the name of the operation, or "op" and its number if it is unknown.
func (o Op) String() string {
	if o < NumOps {
		return opNames[o]
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// Call describes a call of a collective operation at one rank. Sizes and offsets are in bytes.
type Call struct {
	Op Op
	// Ordered says that the reduction is not commutative.
	Ordered bool
	// InPlace says that Out also has the input, at the place of this rank's result. At the root of
	// Scatter it says instead that the root's own block stays in In.
	InPlace    bool
	Rank, Size int
	Root       int
	// Bytes is the size of a block, or of the buffer of an operation without blocks.
	Bytes int
	// Element is the size of an element of a reduction.
	Element int
	// Shared is the size of the memory that the ranks of each node share; 0 if there is none.
	Shared int
	// Ports is the number of peers with which a rank exchanges messages at once in k-port algorithms:
	// that of rails. 0 means 1.
	Ports int
	// Segment is the size of the largest segment that can be multicast; 0 if none can. All ranks have the same.
	Segment int
	// Rendezvous says that a multicast must wait until all ranks have called the operation.
	Rendezvous bool
	// Nodes says where ranks run; nil if the caller does not know.
	Nodes *Nodes
	// In and Out are the blocks of the buffers. With nil they have Bytes bytes and follow each other.
	In, Out *Layout
}

// Layout says where the blocks of a buffer are.
type Layout struct {
	Counts, Offsets []int // by rank
	// Buffers are those of the blocks of an Alltoall, by rank; nil if all are in the buffer of the layout.
	Buffers []Buffer
}

// Clear removes all blocks. The memory of the layout is used again.
func (l *Layout) Clear() {
	l.Counts, l.Offsets, l.Buffers = l.Counts[:0], l.Offsets[:0], l.Buffers[:0]
}

// block returns block i of a buffer.
func (c *Call) block(b Buffer, i int) Slice {
	l := c.Out
	if b == In {
		l = c.In
	}
	switch {
	case l == nil:
		return Slice{b, i * c.Bytes, c.Bytes}
	case l.Buffers != nil:
		b = l.Buffers[i]
	}
	return Slice{b, l.Offsets[i], l.Counts[i]}
}

// all returns the first Bytes bytes of a buffer.
func (c *Call) all(b Buffer) Slice { return Slice{b, 0, c.Bytes} }

// part returns part i of a vector that is divided among the ranks.
func (c *Call) part(b Buffer, i int) Slice { return c.parts(b, i, 1) }

// parts returns n consecutive parts of a vector, from part i on. A part of a reduce-scatter is a block.
// Other vectors are divided evenly, between elements.
func (c *Call) parts(b Buffer, i, n int) Slice {
	first, end := c.partOffset(i), c.partOffset(i+n)
	return Slice{b, first, end - first}
}

func (c *Call) partOffset(i int) int {
	switch element := max(c.Element, 1); {
	case c.Op != ReduceScatter:
		return c.Bytes / element * i / c.Size * element
	case c.In == nil:
		return i * c.Bytes
	case i == c.Size:
		return c.In.Offsets[i-1] + c.In.Counts[i-1]
	}
	return c.In.Offsets[i]
}

// vectorBytes returns the size of the vector that is broadcast or combined.
func (c *Call) vectorBytes() int {
	if c.Op == ReduceScatter {
		return c.partOffset(c.Size)
	}
	return c.Bytes
}

// after returns the rank that is n after this one in a ring, with n up to the number of ranks.
func (c *Call) after(n int) int {
	if n += c.Rank; n >= c.Size {
		n -= c.Size
	}
	return n
}

// before returns the rank that is n before this one in a ring.
func (c *Call) before(n int) int {
	if n = c.Rank - n; n < 0 {
		n += c.Size
	}
	return n
}

// relative returns the number of ranks from the root to this one, in a ring.
func (c *Call) relative() int { return c.before(c.Root) }

// absolute returns the rank with a relative number.
func (c *Call) absolute(relative int) int {
	if relative += c.Root; relative >= c.Size {
		relative -= c.Size
	}
	return relative
}
