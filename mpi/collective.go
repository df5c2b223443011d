package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// give and take are messages of collective operations. The lock is held.
func (c *Comm) give(buf []byte, dest, tag int) error {
	r := c.k.borrow()
	c.sendAlone(&r.p, c.context|collective, buf, dest, tag, p2p.Standard)
	c.k.until(r.p.Done)
	err := r.p.Err
	c.k.giveBack(r)
	return c.gaveUp(err)
}

func (c *Comm) take(buf []byte, source, tag int) error {
	r := c.k.borrow()
	c.startRecv(&r.p, c.context|collective, buf, source, tag)
	c.k.until(r.p.Done)
	err := c.whole(&r.p)
	c.k.giveBack(r)
	return c.gaveUp(err)
}

// gaveUp is an error of a collective operation, that the others hear of.
func (c *Comm) gaveUp(err error) error {
	if err != nil {
		c.giveUp()
	}
	return err
}

// swap does both at once.
func (c *Comm) swap(out []byte, dest int, in []byte, source, tag int) error {
	st, err := c.exchange(c.context|collective, out, dest, tag, in, source, tag)
	if err == nil && source != ProcNull && st.Count != len(in) {
		err = unequal(source, st.Count, len(in))
	}
	return c.gaveUp(err)
}

// whole checks that a message of a collective operation is as long as it must be.
func (c *Comm) whole(p *p2p.Request) error {
	if p.Err == nil && p.Size != len(p.Buf) {
		return unequal(c.rankOf(p.Source), p.Size, len(p.Buf))
	}
	return p.Err
}

func unequal(rank, has, want int) error {
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
	from := (c.me - root + c.size) % c.size
	half := 1
	for half < c.size && from&half == 0 {
		half *= 2
	}
	if from != 0 {
		if err := c.take(buf, (from-half+root)%c.size, tagBcast); err != nil {
			return err
		}
	}
	// All at once: who sends from where the data is has it back only when it has arrived.
	under := make([]*Request, 0, 32)
	for half /= 2; half > 0; half /= 2 {
		if from+half < c.size {
			r := c.k.borrow()
			c.startSend(&r.p, c.context|collective, buf, (from+half+root)%c.size, tagBcast, p2p.Standard)
			under = append(under, r)
		}
	}
	var failed error // the others can still be served
	for _, r := range under {
		c.k.until(r.p.Done)
		if r.p.Err != nil {
			failed = r.p.Err
		}
		c.k.giveBack(r)
	}
	return c.gaveUp(failed)
}

// Allreduce combines the buffers of all ranks, element by element, in all of them.
// Each rank gets the same, to the bit.
func (c *Comm) Allreduce(buf []byte, t Type, op Op) error {
	err := c.usable()
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
	full := 1
	for full*2 <= c.size {
		full *= 2
	}
	beyond := c.size - full // ranks full, full+1, … go with 0, 1, …
	if c.me >= full {
		if err := c.give(buf, c.me-full, tagReduce); err != nil {
			return err
		}
		return c.take(buf, c.me-full, tagReduce)
	}
	other := make([]byte, len(buf))
	if c.me < beyond {
		if err := c.take(other, c.me+full, tagReduce); err != nil {
			return err
		}
		window.Reduce(buf, other, t, op)
	}
	for step := 1; step < full; step *= 2 {
		peer := c.me ^ step
		if err := c.swap(buf, peer, other, peer, tagReduce); err != nil {
			return err
		}
		window.Reduce(buf, other, t, op)
	}
	if c.me < beyond {
		return c.give(buf, c.me+full, tagReduce)
	}
	return nil
}
