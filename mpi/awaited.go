package mpi

import "github.com/fabrictest/fabrictest/mpi/p2p"

// EachAwaitedPeer implements Upper.
func (k *rank) EachAwaitedPeer(visit func(peer int)) {
	members := func(context uint32, from int) {
		switch {
		case context&collective != 0:
			// A collective operation needs all members, but the carrier need not probe those that it
			// does not talk to: visit only those that have exited.
			k.eachMember(context, func(peer int) {
				if k.env.Control.Gone(peer) {
					visit(peer)
				}
			})
		case from == AnySource:
			k.eachMember(context, visit)
		}
	}
	k.p2p.EachAwaitedPeer(visit, members)
	for _, e := range k.activeProbes {
		if e.Source != p2p.Any {
			visit(int(e.Source))
		}
		members(e.Context, int(e.Source))
	}
	k.windows.EachAwaitedPeer(visit)
}

// eachMember visits the other members of a communicator, any of which may send to a
// receive from AnySource.
func (k *rank) eachMember(context uint32, visit func(peer int)) {
	c := k.comms[context&^collective]
	for peer := range k.env.Size {
		if peer != k.env.Rank && (c == nil || c.rankOf(peer) >= 0) {
			visit(peer)
		}
	}
}
