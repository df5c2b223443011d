package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// collectiveSend sends one message of a collective operation and waits for it. The caller holds
// the lock.
func (c *Comm) collectiveSend(buf []byte, dest, tag int) error {
	r := c.rank.allocRequest()
	c.startBlockingSend(&r.p2p, c.context|collective, message{buf, dest, tag}, p2p.Standard)
	c.rank.waitUntil(r.p2p.Done)
	err := r.p2p.Err
	c.rank.freeRequest(r)
	return c.collectiveError(err)
}

// collectiveRecv receives one message of a collective operation, which must fill buf. The caller
// holds the lock.
func (c *Comm) collectiveRecv(buf []byte, source, tag int) error {
	r := c.rank.allocRequest()
	c.startRecv(&r.p2p, c.context|collective, message{buf, source, tag})
	c.rank.waitUntil(r.p2p.Done)
	err := r.p2p.Err
	if err == nil && r.p2p.Size != len(buf) {
		err = lengthMismatch(c.rankOf(r.p2p.Source), r.p2p.Size, len(buf))
	}
	c.rank.freeRequest(r)
	return c.collectiveError(err)
}

// collectiveError returns err. If it is not nil, it first announces the failure to the other ranks.
func (c *Comm) collectiveError(err error) error {
	if err != nil {
		c.announceFailure()
	}
	return err
}

// collectiveSendrecv sends and receives one message of a collective operation, and waits
// for both.
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
	sends := make([]*Request, 0, 32)
	for distance /= 2; distance > 0; distance /= 2 {
		if relative+distance < c.size {
			r := c.rank.allocRequest()
			c.startSend(&r.p2p, c.context|collective, message{buf, (relative + distance + root) % c.size, tagBcast}, p2p.Standard)
			sends = append(sends, r)
		}
	}
	var failed error // keep sending to the other children
	for _, r := range sends {
		c.rank.waitUntil(r.p2p.Done)
		if r.p2p.Err != nil {
			failed = r.p2p.Err
		}
		c.rank.freeRequest(r)
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

// allreduce uses recursive doubling among the largest power of two of ranks. Each
// remaining rank sends its buffer to one of these first and receives the result last. Both
// partners of a pair combine the same two values with a commutative operation, so all
// ranks compute the same bits.
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
		window.Reduce(buf, other, t, op)
	}
	for step := 1; step < pow2; step *= 2 {
		peer := c.me ^ step
		if err := c.collectiveSendrecv(buf, peer, other, peer, tagReduce); err != nil {
			return err
		}
		window.Reduce(buf, other, t, op)
	}
	if c.me < extra {
		return c.collectiveSend(buf, c.me+pow2, tagReduce)
	}
	return nil
}
