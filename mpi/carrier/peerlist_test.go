package carrier

import (
	"slices"
	"testing"
)

func TestPeerListVisitKeepsAddedPeers(t *testing.T) {
	a, b, added := &peer{rank: 0}, &peer{rank: 1}, &peer{rank: 2}
	l := newPeerLists().busy
	l.add(a)
	l.add(b)
	var visited []int
	look := func(p *peer) (stays bool) {
		visited = append(visited, p.rank)
		if p == a {
			l.add(added)
		}
		return p != a
	}
	l.visit(look)
	if !slices.Equal(l.peers, []*peer{added, b}) {
		t.Errorf("%d peers remain, want the added peer and the one that stays", len(l.peers))
	}
	l.visit(look)
	if want := []int{0, 1, 2, 1}; !slices.Equal(visited, want) {
		t.Errorf("visited %v, want %v", visited, want)
	}
}
