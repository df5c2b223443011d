package carrier

import (
	"slices"
	"testing"
)

func TestVisitKeepsPeersAddedMeanwhile(t *testing.T) {
	a, b, added := &peer{rank: 0}, &peer{rank: 1}, &peer{rank: 2}
	c := &Carrier{busyPeers: []*peer{a, b}}
	var visited []int
	look := func(p *peer) {
		visited = append(visited, p.rank)
		if p == a {
			c.markBusy(added)
		} else {
			p.busy = false
			c.markBusy(p)
		}
	}
	visit(&c.busyPeers, &c.spareBusyPeers, look)
	if !slices.Equal(c.busyPeers, []*peer{added, b}) {
		t.Errorf("%d peers are left, want the one that was added and the one that stays", len(c.busyPeers))
	}
	visit(&c.busyPeers, &c.spareBusyPeers, look)
	if want := []int{0, 1, 2, 1}; !slices.Equal(visited, want) {
		t.Errorf("visited %v, want %v", visited, want)
	}
}
