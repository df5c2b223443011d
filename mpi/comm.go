package mpi

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/misuse"
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
	failureAnnounced bool                          // the other members know that collectives have failed
	nonblocking      int                           // number of nonblocking and persistent collectives so far
	segments         map[segmentKey]*sharedSegment // of blocking operations
	activeRegions    map[segmentKey]*sharedRegions // of nonblocking and persistent operations
	inGroup          bool                          // this rank has joined the multicast group
	nodes            *coll.Nodes                   // nil until an algorithm needs them
	choices          coll.Choices                  // algorithms of collective operations
	rules            *coll.RuleSet                 // for those without a choice; nil if there are none, or until the first call
}

// collective is the bit of a context that marks messages of collective operations.
const collective = 1

// newComm creates a communicator of members, all ranks if nil, and registers it under its context.
func (k *rank) newComm(name string, context uint32, members []int) *Comm {
	c := &Comm{rank: k, name: name, context: context, size: k.env.Size, me: k.env.Rank, choices: k.opts.Collectives}
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

// locked calls do with the lock held, unless err says that the arguments of the call are invalid.
// It passes the error of either to the error handler.
func (c *Comm) locked(call string, err error, do func() error) error {
	if err == nil {
		c.rank.lock()
		err = do()
		c.rank.unlock()
	}
	return c.raise(call, err)
}

// lockedResult holds the rank's lock while it calls do, and returns the result of do. It does not
// call do if err says that the arguments are invalid. The error goes to the error handler of c.
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

// Split is collective. It creates a communicator for each colour, with ranks ordered by
// key and then by rank. A rank with colour Undefined gets nil.
func (c *Comm) Split(color, key int) (*Comm, error) {
	err := c.check()
	if err == nil && color < 0 && color != Undefined {
		err = fmt.Errorf("%w: colour %d; colours are non-negative or Undefined", ErrArg, color)
	}
	return c.create("Split", err, func() (*Comm, error) { return c.split(color, key, fmt.Sprintf("%s/%d", c.name, color)) })
}

// SplitNode is MPI_Comm_split_type by host. It is collective, and creates a communicator for the
// ranks of each host, ordered by key and then by rank.
func (c *Comm) SplitNode(key int) (*Comm, error) {
	return c.create("SplitNode", c.check(), func() (*Comm, error) {
		node := c.Node(c.me)
		return c.split(node, key, fmt.Sprintf("%s/host%d", c.name, node))
	})
}

// Dup creates a communicator with the same ranks and a new context.
func (c *Comm) Dup() (*Comm, error) {
	return c.create("Dup", c.check(), func() (*Comm, error) { return c.dup(c.name + "'") })
}

// create calls do, which creates a communicator, with the lock held, unless err says that the arguments
// are invalid.
func (c *Comm) create(call string, err error, do func() (*Comm, error)) (*Comm, error) {
	if err == nil {
		defer c.beginCollective(misuse.Call{Name: call, Root: -1})()
	}
	return lockedResult(c, call, err, func() (*Comm, error) {
		sub, err := do()
		if t := c.rank.calls; t != nil && sub != nil {
			t.newComm(sub, t.place())
		}
		return sub, err
	})
}

// maxContext is the largest context, so that the next one, larger by 2, is an even uint32 too.
const maxContext = 1<<32 - 4

// split exchanges the colour, the key and the next unused context of each rank. The largest of
// these contexts is unused on all ranks. All new communicators use it, since they have no rank in
// common. Contexts are even: the next odd one is for collectives.
func (c *Comm) split(color, key int, name string) (*Comm, error) {
	const fields = 3 // of 8 bytes: colour, key, context
	local := make([]byte, 8*fields)
	for i, v := range []uint64{uint64(int64(color)), uint64(int64(key)), uint64(c.rank.nextContext)} {
		binary.LittleEndian.PutUint64(local[8*i:], v)
	}
	all := make([]byte, len(local)*c.size)
	if err := c.runInternal(c.allgatherCall(local, all)); err != nil {
		return nil, err
	}
	type member struct{ key, rank int }
	var group []member
	context := uint64(0)
	for r := range c.size {
		record := all[8*fields*r:]
		context = max(context, binary.LittleEndian.Uint64(record[16:]))
		if int(int64(binary.LittleEndian.Uint64(record))) == color {
			group = append(group, member{int(int64(binary.LittleEndian.Uint64(record[8:]))), r})
		}
	}
	if context > maxContext {
		return nil, fmt.Errorf("%w: no contexts are left", ErrComm)
	}
	c.rank.nextContext = uint32(context) + 2
	if color == Undefined {
		return nil, nil
	}
	slices.SortFunc(group, func(a, b member) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank)) })
	members := make([]int, len(group))
	for i, m := range group {
		members[i] = c.worldRank(m.rank)
	}
	sub := c.rank.newComm(name, uint32(context), members)
	sub.handler, sub.choices = c.handler, c.choices
	return sub, nil
}

// dup duplicates the communicator. The new context is the largest of the next unused contexts of
// the ranks. Contexts are even: the next odd one is for collectives.
func (c *Comm) dup(name string) (*Comm, error) {
	next := binary.LittleEndian.AppendUint32(nil, c.rank.nextContext)
	if err := c.runInternal(c.allreduceCall(InPlace, next, Uint32, Max)); err != nil {
		return nil, err
	}
	context := binary.LittleEndian.Uint32(next)
	if context > maxContext {
		return nil, fmt.Errorf("%w: no contexts are left", ErrComm)
	}
	c.rank.nextContext = context + 2
	d := &Comm{
		rank: c.rank, name: name, context: context, me: c.me, size: c.size,
		members: c.members, ranks: c.ranks, handler: c.handler, choices: c.choices,
	}
	c.rank.comms[context] = d
	return d, nil
}

// Free is collective. It frees the communicator; pending operations still complete.
func (c *Comm) Free() error {
	err := c.check()
	if err == nil && (c == c.rank.world || c == c.rank.self) {
		err = fmt.Errorf("%w: %s cannot be freed", ErrComm, c.name)
	}
	if err == nil {
		defer c.beginCollective(misuse.Call{Name: "Comm.Free", Root: -1})()
	}
	return c.locked("Comm.Free", err, func() error {
		err := c.barrier()
		c.free()
		if t := c.rank.calls; t != nil {
			t.comm(c).Freed()
		}
		return err
	})
}

// free removes the communicator from the table of contexts.
func (c *Comm) free() {
	c.freed = true
	c.leaveGroup()
	delete(c.rank.comms, c.context)
}
