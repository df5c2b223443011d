package mpi

import "fmt"

// ringMinBytes is the block size from which Allgather uses the ring algorithm.
const ringMinBytes = 4 << 10

// Allgather concatenates the blocks of all ranks in rank order, on every rank. All blocks
// have the same size.
func (c *Comm) Allgather(local, all []byte) error {
	err := c.check()
	if err == nil && len(all) != len(local)*c.size {
		err = fmt.Errorf("%w: a buffer of %d bytes for blocks of %d bytes from %d ranks", ErrArg, len(all), len(local), c.size)
	}
	return c.locked("Allgather", err, func() error { return c.allgather(local, all) })
}

// allgather is Allgather with the lock held and valid arguments.
func (c *Comm) allgather(local, all []byte) error {
	if len(local) >= ringMinBytes {
		return c.allgatherRing(local, all)
	}
	return c.allgatherBruck(local, all)
}

// allgatherBruck is Bruck's algorithm with log2(size) rounds: a rank that holds n blocks
// sends them to rank me-n and receives as many from rank me+n. Blocks are kept in the
// order me, me+1, … and rotated into rank order at the end.
func (c *Comm) allgatherBruck(local, all []byte) error {
	n := len(local)
	blocks := make([]byte, len(all))
	copy(blocks, local)
	for held := 1; held < c.size; held *= 2 {
		count := min(held, c.size-held)
		to, from := (c.me-held+c.size)%c.size, (c.me+held)%c.size
		if err := c.collectiveSendrecv(blocks[:count*n], to, blocks[held*n:(held+count)*n], from, tagAllgather); err != nil {
			return err
		}
	}
	offset := c.me * n
	copy(all[offset:], blocks)
	copy(all[:offset], blocks[len(all)-offset:])
	return nil
}

// allgatherRing passes each block once around the ring of ranks.
func (c *Comm) allgatherRing(local, all []byte) error {
	n := len(local)
	block := func(rank int) []byte { return all[rank*n : (rank+1)*n] }
	copy(block(c.me), local)
	next, prev := (c.me+1)%c.size, (c.me-1+c.size)%c.size
	for i := range c.size - 1 {
		out, in := (c.me-i+c.size)%c.size, (c.me-i-1+c.size)%c.size
		if err := c.collectiveSendrecv(block(out), next, block(in), prev, tagAllgather); err != nil {
			return err
		}
	}
	return nil
}
