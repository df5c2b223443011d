package mpi

import "github.com/fabrictest/fabrictest/mpi/match"

// Awaited implements Upper.
func (k *rank) EachAwaitedPeer(visit func(peer int)) {
	members := func(context uint32, from int) {
		switch {
		case context&collective != 0:
			k.visitGone(context, visit)
		case from == AnySource:
			k.visitMembers(context, visit)
		}
	}
	k.p2p.EachAwaitedPeer(visit, members)
	for _, e := range k.probing {
		if e.Source != match.Any {
			visit(int(e.Source))
		}
		members(e.Context, int(e.Source))
	}
	k.windows.EachAwaitedPeer(visit)
}

// visitMembers visits those who may send to a receive from anybody.
func (k *rank) visitMembers(context uint32, visit func(peer int)) {
	c := k.groups[context&^collective]
	for peer := range k.env.Size {
		if peer != k.env.Rank && (c == nil || c.rankOf(peer) >= 0) {
			visit(peer)
		}
	}
}

// visitGone visits those of a collective operation who have ended. It needs
// everybody, though it hears of most only through others, and need not ask them.
func (k *rank) visitGone(context uint32, visit func(peer int)) {
	k.visitMembers(context, func(peer int) {
		if k.env.Control.Gone(peer) {
			visit(peer)
		}
	})
}
