package p2p

// EachAwaitedPeer visits the peers that pending requests need. For posted receives it also
// calls members with the context and the source, which may be match.Any.
func (e *Engine) EachAwaitedPeer(visit func(peer int), members func(context uint32, from int)) {
	for _, r := range e.requests.all() {
		switch {
		case r.isRecv && r.state == statePosted:
			if r.Peer != Any {
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
