package mpi

import "github.com/fabrictest/fabrictest/mpi/p2p"

// EachAwaitedPeer implements Upper: it visits the peers that requests, blocked probes and windows
// wait for.
func (k *rank) EachAwaitedPeer(visit func(peer int)) {
	visitMembers := func(context uint32, from int) { // for a receive or a probe
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
	k.p2p.EachAwaitedPeer(visit, visitMembers)
	for _, e := range k.activeProbes {
		if e.Source != p2p.Any {
			visit(int(e.Source))
		}
		visitMembers(e.Context, int(e.Source))
	}
	k.windows.EachAwaitedPeer(visit)
}

// eachMember visits the other members of the communicator with a context; all other ranks if the
// communicator was freed.
func (k *rank) eachMember(context uint32, visit func(peer int)) {
	c := k.comms[context&^collective]
	for peer := range k.env.Size {
		if peer != k.env.Rank && (c == nil || c.rankOf(peer) >= 0) {
			visit(peer)
		}
	}
}
