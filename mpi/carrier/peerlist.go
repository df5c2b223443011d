package carrier

// peerList is a list of peers to visit. A peer is in it at most once.
type peerList struct {
	peers []*peer
	spare []*peer // empty slice for reuse
	in    func(*peer) *bool
}

// peerLists are the peers that Progress visits.
type peerLists struct {
	busy       peerList // with queued packets or transfers
	timed      peerList // with a timer that runs
	coalescing []*peer  // with coalesced messages
}

// newPeerLists returns empty lists. A flag of each peer says whether it is in the list.
func newPeerLists() peerLists {
	return peerLists{
		busy:  peerList{in: func(p *peer) *bool { return &p.busy }},
		timed: peerList{in: func(p *peer) *bool { return &p.timed }},
	}
}

// add adds a peer, unless it is in the list.
func (l *peerList) add(p *peer) {
	if in := l.in(p); !*in {
		*in = true
		l.peers = append(l.peers, p)
	}
}

// visit calls look for each peer, and removes the peer if look returns false. Peers that look
// adds are not visited.
func (l *peerList) visit(look func(*peer) (stays bool)) {
	visited := l.peers
	l.peers, l.spare = l.spare[:0], nil
	for _, p := range visited {
		stays := look(p)
		if *l.in(p) = false; stays {
			l.add(p)
		}
	}
	clear(visited)
	l.spare = visited[:0]
}
