package mpi

import "fmt"

// ringFrom is from how many bytes a rank on Allgather goes round in a ring.
const ringMinBytes = 4 << 10

// Allgather brings what each rank has to all, one behind the other in the order of
// ranks. All have as many bytes.
func (c *Comm) Allgather(local, all []byte) error {
	err := c.check()
	if err == nil && len(all) != len(local)*c.size {
		err = fmt.Errorf("%w: %d bytes for %d of each of %d ranks", ErrArg, len(all), len(local), c.size)
	}
	if err != nil {
		return c.raise("Allgather", err)
	}
	c.k.lock()
	err = c.allgather(local, all)
	c.k.unlock()
	return c.raise("Allgather", err)
}

func (c *Comm) allgather(local, all []byte) error {
	if len(local) >= ringMinBytes {
		return c.allgatherRing(local, all)
	}
	return c.allgatherBruck(local, all)
}

// gatherBruck takes log(n) rounds: in each, everybody gives all that it has to
// whoever is as many ranks before as it has parts, and so has twice as many after it.
// Parts are kept from one's own on, and put in place in the end.
func (c *Comm) allgatherBruck(local, all []byte) error {
	n := len(local)
	parts := make([]byte, len(all))
	copy(parts, local)
	for held := 1; held < c.size; held *= 2 {
		count := min(held, c.size-held)
		to, from := (c.me-held+c.size)%c.size, (c.me+held)%c.size
		if err := c.collectiveSendrecv(parts[:count*n], to, parts[held*n:(held+count)*n], from, tagAllgather); err != nil {
			return err
		}
	}
	offset := c.me * n
	copy(all[offset:], parts)
	copy(all[:offset], parts[len(all)-offset:])
	return nil
}

// gatherRing has each part go round.
func (c *Comm) allgatherRing(local, all []byte) error {
	n := len(local)
	part := func(rank int) []byte { return all[rank*n : (rank+1)*n] }
	copy(part(c.me), local)
	next, prev := (c.me+1)%c.size, (c.me-1+c.size)%c.size
	for i := range c.size - 1 {
		out, in := (c.me-i+c.size)%c.size, (c.me-i-1+c.size)%c.size
		if err := c.collectiveSendrecv(part(out), next, part(in), prev, tagAllgather); err != nil {
			return err
		}
	}
	return nil
}
