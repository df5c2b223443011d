package mpi

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Split makes a communicator for each colour, with its ranks in the order of their
// keys, and of their ranks here where keys are equal. It is collective. Whose colour
// is Undefined gets nil.
func (c *Comm) Split(color, key int) (*Comm, error) {
	err := c.check()
	if err == nil && color < 0 && color != Undefined {
		err = fmt.Errorf("%w: colour %d; colours are not negative, and Undefined is none", ErrArg, color)
	}
	if err != nil {
		return nil, c.raise("Split", err)
	}
	c.k.lock()
	sub, err := c.split(color, key, fmt.Sprintf("%s/%d", c.name, color))
	c.k.unlock()
	return sub, c.raise("Split", err)
}

// SplitNode makes a communicator for each host.
func (c *Comm) SplitNode(key int) (*Comm, error) {
	if err := c.check(); err != nil {
		return nil, c.raise("SplitNode", err)
	}
	node := c.Node(c.me)
	c.k.lock()
	sub, err := c.split(node, key, fmt.Sprintf("%s/host%d", c.name, node))
	c.k.unlock()
	return sub, c.raise("SplitNode", err)
}

// Dup makes a communicator of the same ranks.
func (c *Comm) Dup() (*Comm, error) {
	if err := c.check(); err != nil {
		return nil, c.raise("Dup", err)
	}
	c.k.lock()
	d, err := c.dup(c.name + "'")
	c.k.unlock()
	return d, c.raise("Dup", err)
}

// split makes them. What each rank tells the others is its colour, its key and the
// first context that it has not used: the largest of these nobody has. Communicators
// of different colours have no rank in common, and so may have the same context.
func (c *Comm) split(color, key int, name string) (*Comm, error) {
	const fields = 3
	local := make([]byte, 8*fields)
	for i, v := range []uint64{uint64(int64(color)), uint64(int64(key)), uint64(c.k.nextContext)} {
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
		at := all[8*fields*r:]
		context = max(context, binary.LittleEndian.Uint64(at[16:]))
		if int(int64(binary.LittleEndian.Uint64(at))) == color {
			group = append(group, member{int(int64(binary.LittleEndian.Uint64(at[8:]))), r})
		}
	}
	if context+2 > 1<<32-1 {
		return nil, fmt.Errorf("%w: all contexts have been used", ErrComm)
	}
	c.k.nextContext = uint32(context) + 2
	if color == Undefined {
		return nil, nil
	}
	slices.SortFunc(group, func(a, b member) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank)) })
	members := make([]int, len(group))
	for i, m := range group {
		members[i] = c.worldRank(m.rank)
	}
	sub := c.k.newComm(name, uint32(context), members)
	sub.handler = c.handler
	return sub, nil
}

// dup makes one of the same ranks: its context is the largest that anybody proposes.
func (c *Comm) dup(name string) (*Comm, error) {
	next := binary.LittleEndian.AppendUint32(nil, c.k.nextContext)
	if err := c.allreduce(next, Uint32, Max); err != nil {
		return nil, err
	}
	context := binary.LittleEndian.Uint32(next)
	if context > 1<<32-4 {
		return nil, fmt.Errorf("%w: all contexts have been used", ErrComm)
	}
	c.k.nextContext = context + 2
	d := &Comm{
		k: c.k, name: name, context: context, me: c.me, size: c.size,
		members: c.members, ranks: c.ranks, handler: c.handler,
	}
	c.k.comms[context] = d
	return d, nil
}

// Free gives a communicator back. It is collective. What is under way completes.
func (c *Comm) Free() error {
	err := c.check()
	if err == nil && (c == c.k.world || c == c.k.self) {
		err = fmt.Errorf("%w: %s belongs to the runtime", ErrComm, c.name)
	}
	if err != nil {
		return c.raise("Comm.Free", err)
	}
	c.k.lock()
	err = c.barrier()
	c.free()
	c.k.unlock()
	return c.raise("Comm.Free", err)
}

// drop has a communicator known no more.
func (c *Comm) free() {
	c.freed = true
	delete(c.k.comms, c.context)
}
