package mpi

import "fmt"

// Alltoall brings the i-th part of each rank's send buffer to rank i, who has them in
// the order of ranks. All parts have as many bytes.
func (c *Comm) Alltoall(send, recv []byte) error {
	err := c.check()
	if err == nil && (len(send) != len(recv) || len(send)%c.size != 0) {
		err = fmt.Errorf("%w: %d bytes to send and %d to receive; either must be as many, a multiple of the %d ranks", ErrArg, len(send), len(recv), c.size)
	}
	if err != nil {
		return c.raise("Alltoall", err)
	}
	c.k.lock()
	if n := len(send) / c.size; n <= c.k.opts.Bruck {
		err = c.alltoallBruck(send, recv, n)
	} else {
		err = c.alltoallPairwise(send, recv, n)
	}
	c.k.unlock()
	return c.raise("Alltoall", err)
}

// exchangePairwise takes n-1 rounds, in each of which everybody sends to one and
// receives from one.
func (c *Comm) alltoallPairwise(send, recv []byte, n int) error {
	part := func(b []byte, rank int) []byte { return b[rank*n : (rank+1)*n] }
	copy(part(recv, c.me), part(send, c.me))
	for i := 1; i < c.size; i++ {
		to, from := (c.me+i)%c.size, (c.me-i+c.size)%c.size
		if err := c.collectiveSendrecv(part(send, to), to, part(recv, from), from, tagAlltoall); err != nil {
			return err
		}
	}
	return nil
}

// exchangeBruck takes log(n) rounds, in which parts travel together. Part i is that
// for whoever is i ranks on; in round b those travel 2^b ranks on whose distance has
// that bit.
func (c *Comm) alltoallBruck(send, recv []byte, n int) error {
	parts := make([]byte, len(send))
	offset := c.me * n
	copy(parts, send[offset:])
	copy(parts[len(send)-offset:], send[:offset])
	out, in := make([]byte, 0, len(send)), make([]byte, len(send))
	for step := 1; step < c.size; step *= 2 {
		out = out[:0]
		for i := step; i < c.size; i++ {
			if i&step != 0 {
				out = append(out, parts[i*n:(i+1)*n]...)
			}
		}
		received := in[:len(out)]
		if err := c.collectiveSendrecv(out, (c.me+step)%c.size, received, (c.me-step+c.size)%c.size, tagAlltoall); err != nil {
			return err
		}
		for i := step; i < c.size; i++ {
			if i&step != 0 {
				copy(parts[i*n:(i+1)*n], received[:n])
				received = received[n:]
			}
		}
	}
	// Part i has come from whoever is i ranks before.
	for i := range c.size {
		from := (c.me - i + c.size) % c.size
		copy(recv[from*n:(from+1)*n], parts[i*n:(i+1)*n])
	}
	return nil
}
