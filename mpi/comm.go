package mpi

import (
	"fmt"
	"slices"
)

// Comm is a communicator: an ordered group of ranks with its own context.
type Comm struct {
	rank             *rank
	name             string
	context          uint32 // of point-to-point messages; with bit collective set, of collective messages
	me               int
	members          []int   // world ranks by rank; nil if they are equal
	ranks            []int32 // ranks by world rank, -1 for non-members; nil if they are equal
	size             int
	handler          ErrorHandler
	freed            bool
	failureAnnounced bool // the other members know that collectives have failed
	ibarriers        int  // number of Ibarrier calls
}

// collective is the bit of a context that marks messages of collective operations.
const collective = 1

// newComm creates a communicator of members, all ranks if nil, and registers it under its context.
func (k *rank) newComm(name string, context uint32, members []int) *Comm {
	c := &Comm{rank: k, name: name, context: context, size: k.env.Size, me: k.env.Rank}
	if members != nil {
		c.members, c.size, c.ranks = members, len(members), slices.Repeat([]int32{-1}, k.env.Size)
		for i, m := range members {
			c.ranks[m] = int32(i)
		}
		c.me = int(c.ranks[k.env.Rank])
	}
	k.comms[context] = c
	return c
}

// worldRank converts a rank of the communicator to a world rank.
func (c *Comm) worldRank(rank int) int {
	if c.members == nil {
		return rank
	}
	return c.members[rank]
}

// rankOf converts a world rank to a rank of the communicator; -1 for non-members.
func (c *Comm) rankOf(world int) int {
	if c.ranks == nil {
		return world
	}
	return int(c.ranks[world])
}

// Rank is the rank of the caller in the communicator.
func (c *Comm) Rank() int { return c.me }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

// Node returns the index of the host on which a rank of this communicator runs.
func (c *Comm) Node(rank int) int { return c.rank.env.Nodes[c.worldRank(rank)] }

// String is the name of the communicator in error messages.
func (c *Comm) String() string { return c.name }

// check returns an error if the communicator cannot be used.
func (c *Comm) check() error {
	switch {
	case c == nil:
		return fmt.Errorf("%w: it is nil, as Split returns for colour Undefined", ErrComm)
	case c.freed:
		return fmt.Errorf("%w: it was freed", ErrComm)
	}
	return c.rank.checkRunning()
}

// locked runs a call with the lock held, unless err says that its arguments are invalid. It
// passes the error to the error handler.
func (c *Comm) locked(call string, err error, do func() error) error {
	if err == nil {
		c.rank.lock()
		err = do()
		c.rank.unlock()
	}
	return c.raise(call, err)
}

// lockedResult is Comm.locked for a call with a result.
func lockedResult[T any](c *Comm, call string, err error, do func() (T, error)) (result T, _ error) {
	err = c.locked(call, err, func() (err error) {
		result, err = do()
		return err
	})
	return result, err
}

// checkRunning returns an error if the rank has been finalized.
func (k *rank) checkRunning() error {
	if k.ended.Load() {
		return fmt.Errorf("%w: the program has returned", ErrFinalized)
	}
	return nil
}

// checkSend validates the destination and the tag of a send.
func (c *Comm) checkSend(dest, tag int) error {
	if err := c.check(); err != nil {
		return err
	}
	if dest != ProcNull && (dest < 0 || dest >= c.size) {
		return fmt.Errorf("%w: destination %d; %s has ranks 0 to %d, or ProcNull", ErrRank, dest, c.name, c.size-1)
	}
	if tag < 0 || tag > TagMax {
		return fmt.Errorf("%w: tag %d of a send; tags are 0 to %d", ErrTag, tag, TagMax)
	}
	return nil
}

// checkRecv validates the source and the tag of a receive or a probe.
func (c *Comm) checkRecv(source, tag int) error {
	if err := c.check(); err != nil {
		return err
	}
	if source != ProcNull && source != AnySource && (source < 0 || source >= c.size) {
		return fmt.Errorf("%w: source %d; %s has ranks 0 to %d; AnySource and ProcNull are allowed", ErrRank, source, c.name, c.size-1)
	}
	if tag != AnyTag && (tag < 0 || tag > TagMax) {
		return fmt.Errorf("%w: tag %d of a receive; tags are 0 to %d, or AnyTag", ErrTag, tag, TagMax)
	}
	return nil
}

// checkRoot validates the root of a collective operation.
func (c *Comm) checkRoot(rank int) error {
	if err := c.check(); err != nil {
		return err
	}
	if rank < 0 || rank >= c.size {
		return fmt.Errorf("%w: %d; %s has ranks 0 to %d", ErrRank, rank, c.name, c.size-1)
	}
	return nil
}
