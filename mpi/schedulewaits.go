package mpi

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi/coll"
)

// waitIsOver reports whether a step has nothing to wait for any more.
func (x *execution) waitIsOver(s *coll.Step) bool {
	switch s.Kind {
	case coll.Wait:
		return x.transfersComplete()
	case coll.WaitFor:
		peer := x.c.worldRank(s.Peer)
		return x.allTransfers(func(t *transfer) bool { return t.Peer != peer || t.Done() })
	case coll.Multicast:
		return x.canMulticast()
	case coll.WaitStarted:
		return x.allTransfers(func(t *transfer) bool { return t.Started() })
	case coll.WaitSent:
		return x.allTransfers(func(t *transfer) bool { return t.isRecv || t.Done() })
	}
	return true
}

// allTransfers reports whether a condition holds for all transfers. It records the errors of those that
// are complete, because others may depend on that.
func (x *execution) allTransfers(is func(*transfer) bool) (all bool) {
	x.continueTransfers()
	for _, t := range x.transfers {
		if t.Done() {
			x.recordError(t)
		}
	}
	return !slices.ContainsFunc(x.transfers, func(t transfer) bool { return !is(&t) })
}

// continueTransfers begins the steps that follow receives that have completed, in the order of the
// receives. None follow a lost peer.
func (x *execution) continueTransfers() {
	for i := x.completed; i < len(x.transfers) && x.pending > 0; i++ {
		t := x.transfers[i]
		if t.then == nil || !t.Done() {
			continue
		}
		x.transfers[i].then = nil
		x.pending--
		x.recordError(t)
		for k := 0; k < len(t.then) && !x.failed; k++ {
			x.execute(&t.then[k])
		}
	}
	x.chargeCopies()
}

// sortSends moves the sends to peers that have arrived to the front of the advertised sends that begin
// now. Before large ones it handles RTRs, which the sends then wait for by themselves. Before small ones it
// only looks for data, because handling that takes as long as many sends.
func (x *execution) sortSends() {
	steps := x.round.Steps
	if x.next > 0 && steps[x.next-1].Kind == coll.SendAdvertised {
		return
	}
	end := x.next + 1
	for end < len(steps) && steps[end].Kind == coll.SendAdvertised {
		end++
	}
	if end == x.next+1 {
		return
	}
	k := x.c.rank
	if slices.ContainsFunc(steps[x.next:end], func(s coll.Step) bool { return k.p2p.AdvertisesFor(s.Src.Len) }) {
		k.carrier.Progress()
		return
	}
	x.arrived = append(x.arrived[:0], make([]bool, x.c.size)...)
	for _, s := range steps[x.next:end] {
		x.arrived[s.Peer] = k.carrier.HasPacket(x.c.worldRank(s.Peer))
	}
	for _, t := range x.transfers {
		if t.isRecv && t.Done() && t.Err == nil {
			x.arrived[x.c.rankOf(t.Source)] = true
		}
	}
	slices.SortStableFunc(steps[x.next:end], func(a, b coll.Step) int {
		switch {
		case x.arrived[a.Peer] == x.arrived[b.Peer]:
			return 0
		case x.arrived[a.Peer]:
			return -1
		}
		return 1
	})
}
