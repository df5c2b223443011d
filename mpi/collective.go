package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// give and take are messages of collective operations. The lock is held.
func (c *Comm) collectiveSend(buf []byte, dest, tag int) error {
	r := c.k.allocRequest()
	c.startBlockingSend(&r.p2p, c.context|collective, buf, dest, tag, p2p.Standard)
	c.k.waitUntil(r.p2p.Done)
	err := r.p2p.Err
	c.k.freeRequest(r)
	return c.collectiveError(err)
}

func (c *Comm) collectiveRecv(buf []byte, source, tag int) error {
	r := c.k.allocRequest()
	c.startRecv(&r.p2p, c.context|collective, buf, source, tag)
	c.k.waitUntil(r.p2p.Done)
	err := c.checkLength(&r.p2p)
	c.k.freeRequest(r)
	return c.collectiveError(err)
}

// gaveUp is an error of a collective operation, that the others hear of.
func (c *Comm) collectiveError(err error) error {
	if err != nil {
		c.announceFailure()
	}
	return err
}

// swap does both at once.
func (c *Comm) collectiveSendrecv(out []byte, dest int, in []byte, source, tag int) error {
	st, err := c.sendrecvLocked(c.context|collective, out, dest, tag, in, source, tag)
	if err == nil && source != ProcNull && st.Count != len(in) {
		err = lengthMismatch(source, st.Count, len(in))
	}
	return c.collectiveError(err)
}

// whole checks that a message of a collective operation is as long as it must be.
func (c *Comm) checkLength(p *p2p.Request) error {
	if p.Err == nil && p.Size != len(p.Buf) {
		return lengthMismatch(c.rankOf(p.Source), p.Size, len(p.Buf))
	}
	return p.Err
}

func lengthMismatch(rank, has, want int) error {
	return fmt.Errorf("%w: rank %d comes with %d bytes and this one with %d; all must come with as many", ErrArg, rank, has, want)
}

// Bcast brings what is in root's buffer to those of all others, which are as long.
func (c *Comm) Bcast(buf []byte, root int) error {
	if err := c.checkRoot(root); err != nil {
		return c.raise("Bcast", err)
	}
	c.k.lock()
	err := c.bcast(buf, root)
	c.k.unlock()
	return c.raise("Bcast", err)
}

// bcast goes along a binomial tree: who has it gives it to whoever is half of the
// rest away. Counted from the root, the lowest bit of a rank leads to its parent.
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
	// All at once: who sends from where the data is has it back only when it has arrived.
	sends := make([]*Request, 0, 32)
	for distance /= 2; distance > 0; distance /= 2 {
		if relative+distance < c.size {
			r := c.k.allocRequest()
			c.startSend(&r.p2p, c.context|collective, buf, (relative+distance+root)%c.size, tagBcast, p2p.Standard)
			sends = append(sends, r)
		}
	}
	var failed error // the others can still be served
	for _, r := range sends {
		c.k.waitUntil(r.p2p.Done)
		if r.p2p.Err != nil {
			failed = r.p2p.Err
		}
		c.k.freeRequest(r)
	}
	return c.collectiveError(failed)
}

// Allreduce combines the buffers of all ranks, element by element, in all of them.
// Each rank gets the same, to the bit.
func (c *Comm) Allreduce(buf []byte, t Type, op Op) error {
	err := c.check()
	switch {
	case err != nil:
	case t.Size() == 0:
		err = fmt.Errorf("%w: %v", ErrType, t)
	case !op.ValidFor(t) || op == Replace || op == NoOp:
		err = fmt.Errorf("%w: %v of %v", ErrOp, op, t)
	case len(buf)%t.Size() != 0:
		err = fmt.Errorf("%w: %d bytes are no whole number of %v", ErrArg, len(buf), t)
	}
	if err != nil {
		return c.raise("Allreduce", err)
	}
	c.k.lock()
	err = c.allreduce(buf, t, op)
	c.k.unlock()
	return c.raise("Allreduce", err)
}

// allreduce goes by recursive doubling among as many ranks as there is a power of
// two; those beyond give what they have to one of these first, and get it back last.
// Pairs combine the same two values, and all operations here commute, so that no two
// ranks differ.
func (c *Comm) allreduce(buf []byte, t Type, op Op) error {
	pow2 := 1
	for pow2*2 <= c.size {
		pow2 *= 2
	}
	extra := c.size - pow2 // ranks full, full+1, … go with 0, 1, …
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
