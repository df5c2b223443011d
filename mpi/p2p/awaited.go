package p2p

import "github.com/fabrictest/fabrictest/mpi/match"

// Awaited visits the peers that requests under way need. What else is needed by
// receives that wait in a context for a rank, or match.Any, members is asked for.
func (e *Engine) EachAwaitedPeer(visit func(peer int), members func(context uint32, from int)) {
	for _, r := range e.names.all() {
		switch {
		case r.receives && r.state == posted:
			if r.Peer != match.Any {
				visit(r.Peer)
			}
			members(r.Context, r.Peer)
		case r.receives:
			visit(r.Source)
		default:
			visit(r.Peer)
		}
	}
}
