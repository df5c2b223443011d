package mpi

import (
	"cmp"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Multicast sends messages to groups of ranks. Each member of a group receives the messages of every other
// one once and in order, but they are not ordered with those of Send.
type Multicast interface {
	// MaxMulticast is the largest payload of a multicast message, on all ranks; 0 if there is no multicast.
	MaxMulticast() int
	// JoinGroup makes this rank a member. The other members, in ascending order, do so, too, with the same id.
	// LeaveGroup ends that: this rank needs no more messages of the group.
	JoinGroup(id uint64, members []int)
	LeaveGroup(id uint64)
	// CanMulticast reports whether a message can be sent now.
	CanMulticast(id uint64) bool
	// Multicast sends an eager message, and copies its data.
	Multicast(id uint64, h *wire.Header, data []byte)
	// ExpectMulticast notes that this rank needs one more message of a member. Only then a lost message is
	// certainly sent again.
	ExpectMulticast(id uint64, from int)
}

// groupID names the multicast group of the communicator. Communicators of one Split have the same context, and
// different first ranks.
func (c *Comm) groupID() uint64 { return uint64(c.context)<<32 | uint64(c.worldRank(0)) }

// segmentBytes returns the size of the largest segment of a multicast, which is an eager message; 0 if there is no
// multicast.
func (c *Comm) segmentBytes() int {
	k := c.rank
	return max(0, min(k.carrier.MaxMulticast(), k.carrier.MaxData(), k.opts.P2P.EagerLimit))
}

// prepareMulticast joins the group of the communicator when an operation first multicasts. That operation waits until all ranks have
// called it, because they may not have joined before. So does one with much data, for which late ranks would need memory.
func (c *Comm) prepareMulticast(a *coll.Call) {
	a.Rendezvous = !c.inGroup || a.Bytes > c.rank.opts.P2P.EagerLimit
	if c.inGroup || c.size == 1 {
		return
	}
	c.inGroup = true
	var others []int
	for r := range c.size {
		if r != c.me {
			others = append(others, c.worldRank(r))
		}
	}
	slices.Sort(others)
	c.rank.carrier.JoinGroup(c.groupID(), others)
}

// leaveGroup leaves the group of the communicator, unless active operations may need it.
func (c *Comm) leaveGroup() {
	isActive := slices.ContainsFunc(c.rank.collectives, func(x *execution) bool { return x.c == c })
	if c.inGroup && !isActive {
		c.rank.carrier.LeaveGroup(c.groupID())
	}
}

// canMulticast reports whether the operation can multicast a segment now, or fails because a member is lost.
func (x *execution) canMulticast() bool {
	return x.failWithContext() || x.c.rank.carrier.CanMulticast(x.c.groupID())
}

// failWithContext fails the operation if collective operations of its communicator have failed.
func (x *execution) failWithContext() bool {
	k, context := x.c.rank, x.c.context|collective
	if !slices.Contains(k.failedContexts, context) {
		return false
	}
	x.err, x.failed = cmp.Or(x.err, k.p2p.ProbeError(p2p.Envelope{Context: context, Source: p2p.Any})), true
	x.c.announceFailure()
	return true
}

// multicast sends a segment, unless the operation has failed.
func (x *execution) multicast(s *coll.Step) {
	if !x.failed {
		h := wire.Header{Kind: wire.Eager, Context: x.c.context | collective, Tag: int32(x.tagOf(s))}
		x.c.rank.carrier.Multicast(x.c.groupID(), &h, x.slice(s.Src))
	}
}
