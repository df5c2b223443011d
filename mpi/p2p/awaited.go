package p2p

// EachAwaitedPeer calls visit for the peer that each pending request waits for. For a posted
// receive it calls postedRecv as well; source is Any if any member of the communicator may send.
func (e *Engine) EachAwaitedPeer(visit func(peer int), postedRecv func(context uint32, source int)) {
	for _, r := range e.requests.all() {
		switch {
		case r.isRecv && r.state == statePosted:
			if r.Peer != Any {
				visit(r.Peer)
			}
			postedRecv(r.Context, r.Peer)
		case r.isRecv:
			visit(r.Source)
		default:
			visit(r.Peer)
		}
	}
}
