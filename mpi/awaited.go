package mpi

import "github.com/fabrictest/fabrictest/mpi/match"

// Awaited implements Upper.
func (k *rank) EachAwaitedPeer(visit func(peer int)) {
	members := func(context uint32, from int) {
		switch {
		case context&collective != 0:
			k.eachExitedMember(context, visit)
		case from == AnySource:
			k.eachMember(context, visit)
		}
	}
	k.p2p.EachAwaitedPeer(visit, members)
	for _, e := range k.activeProbes {
		if e.Source != match.Any {
			visit(int(e.Source))
		}
		members(e.Context, int(e.Source))
	}
	k.windows.EachAwaitedPeer(visit)
}

// visitMembers visits those who may send to a receive from anybody.
func (k *rank) eachMember(context uint32, visit func(peer int)) {
	c := k.comms[context&^collective]
	for peer := range k.env.Size {
		if peer != k.env.Rank && (c == nil || c.rankOf(peer) >= 0) {
			visit(peer)
		}
	}
}

// visitGone visits those of a collective operation who have ended. It needs
// everybody, though it hears of most only through others, and need not ask them.
func (k *rank) eachExitedMember(context uint32, visit func(peer int)) {
	k.eachMember(context, func(peer int) {
		if k.env.Control.Gone(peer) {
			visit(peer)
		}
	})
}
