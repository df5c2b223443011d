package p2p

import "github.com/fabrictest/fabrictest/mpi/match"

// Awaited visits the peers that requests under way need. What else is needed by
// receives that wait in a context for a rank, or match.Any, members is asked for.
func (e *Engine) EachAwaitedPeer(visit func(peer int), members func(context uint32, from int)) {
	for _, r := range e.requests.all() {
		switch {
		case r.isRecv && r.state == statePosted:
			if r.Peer != match.Any {
				visit(r.Peer)
			}
			members(r.Context, r.Peer)
		case r.isRecv:
			visit(r.Source)
		default:
			visit(r.Peer)
		}
	}
}
