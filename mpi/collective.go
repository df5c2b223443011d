package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// collectiveSend sends one message of a collective and waits for it. The caller holds the lock.
func (c *Comm) collectiveSend(buf []byte, dest, tag int) error {
	r := c.rank.allocP2P()
	c.startBlockingSend(r, c.context|collective, message{buf, dest, tag}, p2p.Standard)
	_, err := c.await(r)
	return c.collectiveError(err)
}

// collectiveRecv receives a message of len(buf) bytes of a collective. The caller holds the lock.
func (c *Comm) collectiveRecv(buf []byte, source, tag int) error {
	r := c.rank.allocP2P()
	c.startRecv(r, c.context|collective, message{buf, source, tag})
	st, err := c.await(r)
	if err == nil && st.Count != len(buf) {
		err = lengthMismatch(source, st.Count, len(buf))
	}
	return c.collectiveError(err)
}

// collectiveError returns err, the result of a collective operation. After an error, it announces
// the failure to the other ranks, whose collectives might wait for this rank.
func (c *Comm) collectiveError(err error) error {
	if err != nil {
		c.announceFailure()
	}
	return err
}

// collectiveSendrecv sends and receives one message of a collective operation, and waits for both.
func (c *Comm) collectiveSendrecv(out []byte, dest int, in []byte, source, tag int) error {
	st, err := c.sendrecvLocked(c.context|collective, message{out, dest, tag}, message{in, source, tag})
	if err == nil && source != ProcNull && st.Count != len(in) {
		err = lengthMismatch(source, st.Count, len(in))
	}
	return c.collectiveError(err)
}

// lengthMismatch is the error of a collective message that does not fill its buffer.
func lengthMismatch(rank, has, want int) error {
	return fmt.Errorf("%w: rank %d passed %d bytes and this rank %d; all ranks must pass the same size", ErrArg, rank, has, want)
}

// Bcast copies root's buffer to the buffers of all other ranks, which have the same size.
func (c *Comm) Bcast(buf []byte, root int) error {
	return c.locked("Bcast", c.checkRoot(root), func() error { return c.bcast(buf, root) })
}

// bcast uses a binomial tree. Ranks are relative to the root; clearing the lowest set bit
// of a relative rank gives its parent.
func (c *Comm) bcast(buf []byte, root int) error {
	relative := (c.me - root + c.size) % c.size
	distance := 1
	for distance < c.size && relative&distance == 0 {
		distance *= 2
	}
	if relative != 0 {
		if err := c.collectiveRecv(buf, (relative-distance+root)%c.size, tagBcast); err != nil {
			return err
		}
	}
	// Send to all children at once: a rendezvous send completes only when its data has arrived.
	const maxChildren = 32 // of a tree with up to 2^32 ranks
	sends := make([]*p2p.Request, 0, maxChildren)
	for distance /= 2; distance > 0; distance /= 2 {
		if relative+distance < c.size {
			r := c.rank.allocP2P()
			c.startSend(r, c.context|collective, message{buf, (relative + distance + root) % c.size, tagBcast}, p2p.Standard)
			sends = append(sends, r)
		}
	}
	var failed error
	for _, r := range sends { // also after an error, for the other children
		c.rank.waitUntil(r.Done)
		if r.Err != nil {
			failed = r.Err
		}
		c.rank.freeP2P(r)
	}
	return c.collectiveError(failed)
}

// Allreduce combines the buffers of all ranks element by element and leaves the result in
// all of them. The result is bit-identical on all ranks.
func (c *Comm) Allreduce(buf []byte, t Type, op Op) error {
	err := c.check()
	switch {
	case err != nil:
	case t.Size() == 0:
		err = fmt.Errorf("%w: %v", ErrType, t)
	case !op.ValidFor(t) || op == Replace || op == NoOp:
		err = fmt.Errorf("%w: %v of %v", ErrOp, op, t)
	case len(buf)%t.Size() != 0:
		err = fmt.Errorf("%w: %d bytes are not a whole number of %v elements", ErrArg, len(buf), t)
	}
	return c.locked("Allreduce", err, func() error { return c.allreduce(buf, t, op) })
}

// allreduce uses recursive doubling among the first pow2 ranks, the largest power of two. Each
// remaining rank first sends its buffer to one of these, and at the end receives the result. Both
// ranks of a pair combine the same values with a commutative operation, and so get the same bits.
func (c *Comm) allreduce(buf []byte, t Type, op Op) error {
	pow2 := 1
	for pow2*2 <= c.size {
		pow2 *= 2
	}
	extra := c.size - pow2 // rank pow2+i is served by rank i
	if c.me >= pow2 {
		if err := c.collectiveSend(buf, c.me-pow2, tagReduce); err != nil {
			return err
		}
		return c.collectiveRecv(buf, c.me-pow2, tagReduce)
	}
	other := make([]byte, len(buf))
	if c.me < extra {
		if err := c.collectiveRecv(other, c.me+pow2, tagReduce); err != nil {
			return err
		}
		c.rank.reduce(buf, other, t, op)
	}
	for step := 1; step < pow2; step *= 2 {
		peer := c.me ^ step
		if err := c.collectiveSendrecv(buf, peer, other, peer, tagReduce); err != nil {
			return err
		}
		c.rank.reduce(buf, other, t, op)
	}
	if c.me < extra {
		return c.collectiveSend(buf, c.me+pow2, tagReduce)
	}
	return nil
}

// ringMinBytes is the block size from which Allgather uses the ring algorithm.
const ringMinBytes = 4 << 10

// Allgather concatenates the blocks of all ranks, of equal size, in rank order, on every rank.
func (c *Comm) Allgather(local, all []byte) error {
	err := c.check()
	if err == nil && len(all) != len(local)*c.size {
		err = fmt.Errorf("%w: a buffer of %d bytes for blocks of %d bytes from %d ranks", ErrArg, len(all), len(local), c.size)
	}
	return c.locked("Allgather", err, func() error { return c.allgather(local, all) })
}

// allgather concatenates the blocks of all ranks in rank order. The caller holds the lock.
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
	c.rank.chargeCopy(n)
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
	c.rank.chargeCopy(len(all))
	return nil
}

// allgatherRing passes each block once around the ring of ranks.
func (c *Comm) allgatherRing(local, all []byte) error {
	n := len(local)
	block := func(rank int) []byte { return all[rank*n : (rank+1)*n] }
	copy(block(c.me), local)
	c.rank.chargeCopy(n)
	next, prev := (c.me+1)%c.size, (c.me-1+c.size)%c.size
	for i := range c.size - 1 {
		out, in := (c.me-i+c.size)%c.size, (c.me-i-1+c.size)%c.size
		if err := c.collectiveSendrecv(block(out), next, block(in), prev, tagAllgather); err != nil {
			return err
		}
	}
	return nil
}

// Alltoall sends the i-th block of each rank's send buffer to rank i, which stores the
// blocks in rank order. All blocks have the same size.
func (c *Comm) Alltoall(send, recv []byte) error {
	err := c.check()
	if err == nil && (len(send) != len(recv) || len(send)%c.size != 0) {
		err = fmt.Errorf("%w: %d bytes to send and %d to receive; the sizes must be equal and a multiple of the %d ranks", ErrArg, len(send), len(recv), c.size)
	}
	return c.locked("Alltoall", err, func() error {
		n := len(send) / c.size
		if n > c.rank.opts.BruckLimit {
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
	c.rank.chargeCopy(n)
	for i := 1; i < c.size; i++ {
		to, from := (c.me+i)%c.size, (c.me-i+c.size)%c.size
		if err := c.collectiveSendrecv(block(send, to), to, block(recv, from), from, tagAlltoall); err != nil {
			return err
		}
	}
	return nil
}

// alltoallBruck is Bruck's algorithm for blocks of n bytes, with log2(size) rounds. Block i is for
// rank me+i; each round sends the blocks whose index has the bit step set to rank me+step.
func (c *Comm) alltoallBruck(send, recv []byte, n int) error {
	blocks := make([]byte, len(send))
	offset := c.me * n
	copy(blocks, send[offset:])
	copy(blocks[len(send)-offset:], send[:offset])
	c.rank.chargeCopy(len(send))
	out, in := make([]byte, 0, len(send)), make([]byte, len(send))
	for step := 1; step < c.size; step *= 2 {
		out = out[:0]
		for i := step; i < c.size; i++ {
			if i&step != 0 {
				out = append(out, blocks[i*n:(i+1)*n]...)
			}
		}
		c.rank.chargeCopy(len(out)) // all blocks of a message count as one copy
		received := in[:len(out)]
		if err := c.collectiveSendrecv(out, (c.me+step)%c.size, received, (c.me-step+c.size)%c.size, tagAlltoall); err != nil {
			return err
		}
		c.rank.chargeCopy(len(out))
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
	c.rank.chargeCopy(len(recv))
	return nil
}
