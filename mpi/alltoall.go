package mpi

import "fmt"

// Alltoall sends the i-th block of each rank's send buffer to rank i, which stores the
// blocks in rank order. All blocks have the same size.
func (c *Comm) Alltoall(send, recv []byte) error {
	err := c.check()
	if err == nil && (len(send) != len(recv) || len(send)%c.size != 0) {
		err = fmt.Errorf("%w: %d bytes to send and %d to receive; the sizes must be equal and a multiple of the %d ranks", ErrArg, len(send), len(recv), c.size)
	}
	return c.locked("Alltoall", err, func() error {
		n := len(send) / c.size
		if n > c.rank.opts.Bruck {
			return c.alltoallPairwise(send, recv, n)
		}
		return c.alltoallBruck(send, recv, n)
	})
}

// alltoallPairwise exchanges blocks of n bytes in size-1 rounds. In round i each rank sends to
// rank me+i and receives from rank me-i.
func (c *Comm) alltoallPairwise(send, recv []byte, n int) error {
	block := func(b []byte, rank int) []byte { return b[rank*n : (rank+1)*n] }
	copy(block(recv, c.me), block(send, c.me))
	for i := 1; i < c.size; i++ {
		to, from := (c.me+i)%c.size, (c.me-i+c.size)%c.size
		if err := c.collectiveSendrecv(block(send, to), to, block(recv, from), from, tagAlltoall); err != nil {
			return err
		}
	}
	return nil
}

// alltoallBruck is Bruck's algorithm for blocks of n bytes, with log2(size) rounds. Block i is
// for rank me+i; in the round with distance step, the blocks whose index has bit step set are
// sent to rank me+step.
func (c *Comm) alltoallBruck(send, recv []byte, n int) error {
	blocks := make([]byte, len(send))
	offset := c.me * n
	copy(blocks, send[offset:])
	copy(blocks[len(send)-offset:], send[:offset])
	out, in := make([]byte, 0, len(send)), make([]byte, len(send))
	for step := 1; step < c.size; step *= 2 {
		out = out[:0]
		for i := step; i < c.size; i++ {
			if i&step != 0 {
				out = append(out, blocks[i*n:(i+1)*n]...)
			}
		}
		received := in[:len(out)]
		if err := c.collectiveSendrecv(out, (c.me+step)%c.size, received, (c.me-step+c.size)%c.size, tagAlltoall); err != nil {
			return err
		}
		for i := step; i < c.size; i++ {
			if i&step != 0 {
				copy(blocks[i*n:(i+1)*n], received[:n])
				received = received[n:]
			}
		}
	}
	// Block i now comes from rank me-i.
	for i := range c.size {
		from := (c.me - i + c.size) % c.size
		copy(recv[from*n:(from+1)*n], blocks[i*n:(i+1)*n])
	}
	return nil
}
