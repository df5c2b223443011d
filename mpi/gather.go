package mpi

import "fmt"

// ringFrom is from how many bytes a rank on Allgather goes round in a ring.
const ringFrom = 4 << 10

// Allgather brings what each rank has to all, one behind the other in the order of
// ranks. All have as many bytes.
func (c *Comm) Allgather(mine, all []byte) error {
	err := c.usable()
	if err == nil && len(all) != len(mine)*c.size {
		err = fmt.Errorf("%w: %d bytes for %d of each of %d ranks", ErrArg, len(all), len(mine), c.size)
	}
	if err != nil {
		return c.raise("Allgather", err)
	}
	c.k.lock()
	err = c.allgather(mine, all)
	c.k.unlock()
	return c.raise("Allgather", err)
}

func (c *Comm) allgather(mine, all []byte) error {
	if len(mine) >= ringFrom {
		return c.gatherRing(mine, all)
	}
	return c.gatherBruck(mine, all)
}

// gatherBruck takes log(n) rounds: in each, everybody gives all that it has to
// whoever is as many ranks before as it has parts, and so has twice as many after it.
// Parts are kept from one's own on, and put in place in the end.
func (c *Comm) gatherBruck(mine, all []byte) error {
	n := len(mine)
	parts := make([]byte, len(all))
	copy(parts, mine)
	for have := 1; have < c.size; have *= 2 {
		more := min(have, c.size-have)
		to, from := (c.me-have+c.size)%c.size, (c.me+have)%c.size
		if err := c.swap(parts[:more*n], to, parts[have*n:(have+more)*n], from, tagGather); err != nil {
			return err
		}
	}
	own := c.me * n
	copy(all[own:], parts)
	copy(all[:own], parts[len(all)-own:])
	return nil
}

// gatherRing has each part go round.
func (c *Comm) gatherRing(mine, all []byte) error {
	n := len(mine)
	part := func(rank int) []byte { return all[rank*n : (rank+1)*n] }
	copy(part(c.me), mine)
	next, before := (c.me+1)%c.size, (c.me-1+c.size)%c.size
	for i := range c.size - 1 {
		out, in := (c.me-i+c.size)%c.size, (c.me-i-1+c.size)%c.size
		if err := c.swap(part(out), next, part(in), before, tagGather); err != nil {
			return err
		}
	}
	return nil
}
