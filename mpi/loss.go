package mpi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// A collective operation needs all ranks of its communicator. When one is lost,
// nothing can come of it any more, and of none to come: who knows of the loss gives
// up, and who waits for such a one would wait for ever, if it does not know itself.
// So each rank that gives up lets the others know, unless they know it by themselves;
// and what they still send it takes and drops, so that their sends end.

// Lost implements Upper.
func (k *rank) Lost(peer int, cause error) {
	k.p2p.Lost(peer, cause)
	k.windows.Lost(peer, cause)
	contexts := make([]uint32, 0, len(k.comms))
	for context, c := range k.comms {
		if c.rankOf(peer) >= 0 {
			contexts = append(contexts, context)
		}
	}
	slices.Sort(contexts)
	for _, context := range contexts {
		k.failCollectives(context|collective, fmt.Errorf("rank %d: %w: %w", peer, p2p.ErrLost, cause))
	}
	k.lostPeers = append(k.lostPeers, peer)
}

// breakOff ends the collective operations of a context.
func (k *rank) failCollectives(context uint32, err error) {
	if slices.Contains(k.failedContexts, context) {
		return
	}
	k.failedContexts = append(k.failedContexts, context)
	k.p2p.FailContext(context, err)
}

// brokenBy takes the word of a rank that has given up.
func (k *rank) collectiveFailedAt(context uint32, peer int) {
	k.failCollectives(context, fmt.Errorf("%w: rank %d of the world cannot reach all of the group", p2p.ErrLost, peer))
	if c := k.comms[context&^collective]; c != nil {
		c.failureAnnounced = true // by whoever told us
	}
}

// giveUp tells the others of a communicator that a collective operation has failed
// here. Those who have ended are known by all to have; so it is only of others that
// are lost that they must be told.
func (c *Comm) announceFailure() {
	k := c.k
	if c.failureAnnounced || !slices.ContainsFunc(k.lostPeers, func(peer int) bool { return c.rankOf(peer) >= 0 && !k.env.Control.Gone(peer) }) {
		return
	}
	c.failureAnnounced = true
	h := wire.Header{Kind: wire.Eager, Context: c.context | collective, Tag: tagFailed}
	for r := range c.size {
		if peer := c.worldRank(r); r != c.me && !slices.Contains(k.lostPeers, peer) {
			k.carrier.Send(peer, &h, nil, nil)
		}
	}
}

// concerns reports whether a receive is in vain when a rank is lost.
func (k *rank) dependsOn(context uint32, from, lost int) bool {
	c := k.comms[context&^collective]
	return from == lost || from == AnySource && (c == nil || c.rankOf(lost) >= 0)
}
