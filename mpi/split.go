package mpi

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Split is collective. It creates a communicator for each colour, with ranks ordered by
// key and then by rank. A rank with colour Undefined gets nil.
func (c *Comm) Split(color, key int) (*Comm, error) {
	err := c.check()
	if err == nil && color < 0 && color != Undefined {
		err = fmt.Errorf("%w: colour %d; colours are non-negative or Undefined", ErrArg, color)
	}
	return lockedResult(c, "Split", err, func() (*Comm, error) { return c.split(color, key, fmt.Sprintf("%s/%d", c.name, color)) })
}

// SplitNode creates a communicator for each host.
func (c *Comm) SplitNode(key int) (*Comm, error) {
	return lockedResult(c, "SplitNode", c.check(), func() (*Comm, error) {
		node := c.Node(c.me)
		return c.split(node, key, fmt.Sprintf("%s/host%d", c.name, node))
	})
}

// Dup creates a communicator with the same ranks and a new context.
func (c *Comm) Dup() (*Comm, error) {
	return lockedResult(c, "Dup", c.check(), func() (*Comm, error) { return c.dup(c.name + "'") })
}

// split exchanges the colour, the key and the next unused context of each rank. The
// largest of these contexts is unused on all ranks. Communicators of different colours
// have no rank in common and share it. Contexts are even: the next odd one is for collectives.
func (c *Comm) split(color, key int, name string) (*Comm, error) {
	const fields = 3
	local := make([]byte, 8*fields)
	for i, v := range []uint64{uint64(int64(color)), uint64(int64(key)), uint64(c.rank.nextContext)} {
		binary.LittleEndian.PutUint64(local[8*i:], v)
	}
	all := make([]byte, len(local)*c.size)
	if err := c.allgather(local, all); err != nil {
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
	if context+2 > 1<<32-1 {
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
	sub.handler = c.handler
	return sub, nil
}

// dup duplicates the communicator. The new context, even as all are, is the largest that a rank
// proposes.
func (c *Comm) dup(name string) (*Comm, error) {
	next := binary.LittleEndian.AppendUint32(nil, c.rank.nextContext)
	if err := c.allreduce(next, Uint32, Max); err != nil {
		return nil, err
	}
	context := binary.LittleEndian.Uint32(next)
	if context > 1<<32-4 {
		return nil, fmt.Errorf("%w: no contexts are left", ErrComm)
	}
	c.rank.nextContext = context + 2
	d := &Comm{
		rank: c.rank, name: name, context: context, me: c.me, size: c.size,
		members: c.members, ranks: c.ranks, handler: c.handler,
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
	return c.locked("Comm.Free", err, func() error {
		err := c.barrier()
		c.free()
		return err
	})
}

// free removes the communicator from the table of contexts.
func (c *Comm) free() {
	c.freed = true
	delete(c.rank.comms, c.context)
}
