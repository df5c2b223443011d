package mpi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// A collective operation needs all ranks of its communicator. A rank whose collective
// fails because a peer is lost therefore announces the failure to the other members,
// which may wait for this rank without knowing of the loss. It receives and discards
// their remaining collective messages, so that their sends complete.

// Lost implements Upper; the carrier calls it for a peer that cannot be reached. It fails all
// operations with the peer, and collectives of all communicators that contain it.
func (k *rank) Lost(peer int, cause error) {
	k.p2p.Lost(peer, cause)
	k.windows.Lost(peer, cause)
	contexts := make([]uint32, 0, len(k.comms))
	for context, c := range k.comms {
		if c.rankOf(peer) >= 0 {
			contexts = append(contexts, context)
		}
	}
	slices.Sort(contexts) // not in the random order of a map
	for _, context := range contexts {
		k.failCollectives(context|collective, fmt.Errorf("rank %d: %w: %w", peer, p2p.ErrLost, cause))
	}
	k.lostPeers = append(k.lostPeers, peer)
}

// failCollectives fails all current and future collective receives in a context.
func (k *rank) failCollectives(context uint32, err error) {
	if slices.Contains(k.failedContexts, context) {
		return
	}
	k.failedContexts = append(k.failedContexts, context)
	k.p2p.FailContext(context, err)
}

// collectiveFailedAt handles a peer's announcement that its collectives in a context have failed.
func (k *rank) collectiveFailedAt(context uint32, peer int) {
	k.failCollectives(context, fmt.Errorf("%w: world rank %d cannot reach all members of the communicator", p2p.ErrLost, peer))
	if c := k.comms[context&^collective]; c != nil {
		c.failureAnnounced = true // by that peer
	}
}

// announceFailure notifies the other members, once, that a collective operation has failed on this
// rank. If all lost members have exited, it does nothing: every rank detects an exit itself.
func (c *Comm) announceFailure() {
	k := c.rank
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

// dependsOn reports whether a receive from a rank, or from AnySource, cannot complete after the loss
// of rank lost. A receive from AnySource depends on all members of its communicator; on all ranks if
// the communicator was freed.
func (k *rank) dependsOn(context uint32, from, lost int) bool {
	c := k.comms[context&^collective]
	return from == lost || from == AnySource && (c == nil || c.rankOf(lost) >= 0)
}

// EachAwaitedPeer implements Upper: it visits the peers that requests, blocked probes and windows
// wait for, so that the carrier checks that they are alive.
func (k *rank) EachAwaitedPeer(visit func(peer int)) {
	visitMembers := func(context uint32, from int) { // for a receive or a probe
		switch {
		case context&collective != 0:
			// A collective operation needs all members, but this rank exchanges messages with few
			// of them. Visit those that have exited, so that the carrier detects their loss.
			k.eachMember(context, func(peer int) {
				if k.env.Control.Gone(peer) {
					visit(peer)
				}
			})
		case from == AnySource:
			k.eachMember(context, visit)
		}
	}
	k.p2p.EachAwaitedPeer(visit, visitMembers)
	for _, e := range k.activeProbes {
		if e.Source != p2p.Any {
			visit(int(e.Source))
		}
		visitMembers(e.Context, int(e.Source))
	}
	k.windows.EachAwaitedPeer(visit)
	k.eachRegionUser(visit)
}

// eachMember calls visit for the other members of the communicator with a context; for all other
// ranks if the communicator was freed.
func (k *rank) eachMember(context uint32, visit func(peer int)) {
	c := k.comms[context&^collective]
	for peer := range k.env.Size {
		if peer != k.env.Rank && (c == nil || c.rankOf(peer) >= 0) {
			visit(peer)
		}
	}
}
