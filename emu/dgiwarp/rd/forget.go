package rd

import (
	"cmp"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// fail ends the flow to a peer and reports it by EventFailed.
func (l *Layer) fail(p *Peer, why error) {
	l.Count.FlowsFailed++
	p.End()
	p.err = why
	l.queueEvent(p)
}

// releaseSegments releases all segments to the peer, sent or not, and stops its timers.
func (p *Peer) releaseSegments() {
	for s := p.send.oldest; s != nil; {
		s = p.layer.segments.release(s)
	}
	p.send.oldest, p.send.newest, p.send.unsent, p.send.lostSearchStart = nil, nil, nil, nil
	p.send.una, p.send.sent, p.send.sacked, p.send.lost = p.send.next, p.send.next, 0, 0
	p.set(flagBusy|flagProbe, false)
	p.setPaced(false)
	p.send.rto.at = mono.Never
}

// End ends the flow to a peer without an event. Unacknowledged segments may or may not arrive.
// Layer.Peer begins a new flow.
func (p *Peer) End() {
	p.releaseSegments()
	p.set(flagSending|flagStarting, false)
}

// RefuseFlow refuses all further packets of the current flow from the peer, so that the flow fails
// there. The peer can begin a new flow. If EventBegins of a new flow has not been returned yet,
// RefuseFlow does nothing: the flow that the layer's owner refuses has been replaced already.
func (p *Peer) RefuseFlow() {
	if p.has(flagReceiving) && !p.has(flagBegins) && !p.Gone() {
		p.layer.dropReceived(p)
		p.setAckTimer(mono.Never)
		p.set(flagAckDue, false)
		p.set(flagRefused, true)
	}
}

// dropReceived discards all segments from the peer that the layer's owner has not accepted.
func (l *Layer) dropReceived(p *Peer) {
	l.blocked.remove(p)
	for p.recv.stored != nil {
		l.unstore(p)
	}
	if l.arrival.peer == p {
		l.arrival = arrival{}
	}
	if l.offered == p {
		l.offered = nil
	}
}

// removePeer removes a peer from all tables, and releases its segments.
func (l *Layer) removePeer(p *Peer) {
	p.releaseSegments()
	l.dropReceived(p)
	p.setAckTimer(mono.Never)
	delete(l.peers, p.Key)
	if l.lastFound == p {
		l.lastFound = nil
	}
	l.timers.Stop(&p.timer)
	p.set(flagRemoved, true)
	if l.peak > smallTable && len(l.peers) < l.peak/8 {
		l.shrink()
	}
}

// smallTable is the number of peers up to which tables are not shrunk.
const smallTable = 1024

// shrink reallocates tables that were made for many more peers than are left, since Go maps
// and slices do not shrink.
func (l *Layer) shrink() {
	peers := make(map[Key]*Peer, len(l.peers))
	for k, p := range l.peers { //layers:ordered the copy does not depend on the order
		peers[k] = p
	}
	l.peers, l.peak = peers, len(peers)
	l.timers.Clip()
	for _, q := range []*nic.FIFO[*Peer]{&l.turn.active, &l.notices, &l.ready} {
		var small nic.FIFO[*Peer]
		for p, ok := q.Pop(); ok; p, ok = q.Pop() {
			small.Push(p)
		}
		*q = small
	}
}

// PeersOf returns the peers of a local queue pair, in the order of their creation (TieBreak).
func (l *Layer) PeersOf(local uint32) []*Peer {
	var all []*Peer
	for _, p := range l.peers { //layers:ordered they are sorted
		if p.Key.LocalQP == local {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *Peer) int { return cmp.Compare(a.timer.TieBreak, b.timer.TieBreak) })
	return all
}

// CloseQP removes all peers of a local queue pair without events. A later queue pair with the
// same number has another incarnation.
func (l *Layer) CloseQP(local uint32) {
	l.secrets.timesClosed[local]++
	for _, p := range l.PeersOf(local) {
		l.removePeer(p)
		p.acked, p.err = 0, nil
	}
}
