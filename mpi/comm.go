package mpi

import "fmt"

// Comm is a communicator: an ordered group of ranks, whose messages are apart from
// those of all other communicators.
type Comm struct {
	k                *rank
	name             string
	context          uint32 // of its messages; with the bit collective, of what its collective operations send
	me               int
	members          []int   // ranks of the world; nil where they are the same
	ranks            []int32 // by rank of the world, -1 of those who are not in it; nil where they are the same
	size             int
	handler          ErrorHandler
	freed            bool
	failureAnnounced bool // the others know that its collective operations fail
	ibarriers        int  // that did not wait, so far
}

// collective is the bit of a context that tells what collective operations send from
// what programs do.
const collective = 1

// newComm makes a communicator and has it known by its context.
func (k *rank) newComm(name string, context uint32, members []int) *Comm {
	c := &Comm{k: k, name: name, context: context, size: len(members), members: members}
	c.ranks = make([]int32, k.env.Size)
	for i := range c.ranks {
		c.ranks[i] = -1
	}
	for i, m := range members {
		c.ranks[m] = int32(i)
	}
	c.me = int(c.ranks[k.env.Rank])
	k.comms[context] = c
	return c
}

// newWorld makes the communicator of all.
func (k *rank) newWorld() *Comm {
	c := &Comm{k: k, name: "world", context: 0, size: k.env.Size, me: k.env.Rank}
	k.comms[c.context] = c
	return c
}

// worldRank is the rank in the world of one here.
func (c *Comm) worldRank(rank int) int {
	if c.members == nil {
		return rank
	}
	return c.members[rank]
}

// rankOf is the rank here of one in the world; -1 if it is none.
func (c *Comm) rankOf(world int) int {
	if c.ranks == nil {
		return world
	}
	return int(c.ranks[world])
}

// Rank is this rank's, in the communicator.
func (c *Comm) Rank() int { return c.me }

// Size is how many ranks there are.
func (c *Comm) Size() int { return c.size }

// Node is the host of a rank.
func (c *Comm) Node(rank int) int { return c.k.env.Nodes[c.worldRank(rank)] }

// String is the communicator's name, as errors have it.
func (c *Comm) String() string { return c.name }

// usable says why a communicator cannot be used.
func (c *Comm) check() error {
	switch {
	case c == nil:
		return fmt.Errorf("%w: there is none, as for a colour Undefined", ErrComm)
	case c.freed:
		return fmt.Errorf("%w: it was freed", ErrComm)
	}
	return c.k.checkRunning()
}

// over says that the rank has ended.
func (k *rank) checkRunning() error {
	if k.ended.Load() {
		return fmt.Errorf("%w: nothing can be called after its program has returned", ErrFinalized)
	}
	return nil
}

// checkSend says what is wrong with where a message is to go.
func (c *Comm) checkSend(dest, tag int) error {
	if err := c.check(); err != nil {
		return err
	}
	if dest != ProcNull && (dest < 0 || dest >= c.size) {
		return fmt.Errorf("%w: destination %d; %s has ranks 0 to %d, and ProcNull is nobody", ErrRank, dest, c.name, c.size-1)
	}
	if tag < 0 || tag > TagMax {
		return fmt.Errorf("%w: %d to send with; tags are 0 to %d", ErrTag, tag, TagMax)
	}
	return nil
}

// checkRecv says what is wrong with where a message is to come from.
func (c *Comm) checkRecv(source, tag int) error {
	if err := c.check(); err != nil {
		return err
	}
	if source != ProcNull && source != AnySource && (source < 0 || source >= c.size) {
		return fmt.Errorf("%w: source %d; %s has ranks 0 to %d, AnySource is any of them, and ProcNull nobody", ErrRank, source, c.name, c.size-1)
	}
	if tag != AnyTag && (tag < 0 || tag > TagMax) {
		return fmt.Errorf("%w: %d to receive; tags are 0 to %d, and AnyTag", ErrTag, tag, TagMax)
	}
	return nil
}

// checkRoot says what is wrong with a rank that must be there.
func (c *Comm) checkRoot(rank int) error {
	if err := c.check(); err != nil {
		return err
	}
	if rank < 0 || rank >= c.size {
		return fmt.Errorf("%w: %d; %s has ranks 0 to %d", ErrRank, rank, c.name, c.size-1)
	}
	return nil
}
