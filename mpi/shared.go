package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/coll"
)

// sharedBytes is the size of the part of each rank in the memory that the ranks of a communicator share.
const sharedBytes = 64 << 10

// share gives a call the memory that all ranks of the communicator share, if its chosen algorithm needs
// it and all ranks are on one host. Only one operation at a time can use it: no nonblocking one does.
func (c *Comm) share(a *collectiveCall) (err error) {
	if chosen := c.choices[a.Op]; chosen == nil || chosen.Needs&coll.SharedMemory == 0 {
		return nil
	}
	if !c.isShared {
		c.shared, err = c.openShared()
		c.isShared = err == nil
	}
	a.shared, a.Shared = c.shared, len(c.shared)
	return err
}

// nodesFor returns the nodes of the ranks, if the chosen algorithm of an operation needs them.
func (c *Comm) nodesFor(op coll.Op) *coll.Nodes {
	a := c.choices[op]
	if a == nil || a.Needs&coll.KnownNodes == 0 {
		return nil
	}
	if c.nodes == nil {
		c.nodes = coll.NewNodes(c.size, c.Node)
	}
	return c.nodes
}

// openShared opens the segment of the communicator. Communicators of one Split have the same context, and
// different first ranks.
func (c *Comm) openShared() ([]byte, error) {
	e := c.rank.env
	if e.Shared == nil || c.rank.opts.Carrier.NoSharedMemory {
		return nil, nil
	}
	for r := range c.size {
		if c.Node(r) != c.Node(c.me) {
			return nil, nil
		}
	}
	return e.Shared.Segment(fmt.Sprintf("collectives-%d-%d", c.context, c.worldRank(0)), sharedBytes*c.size)
}
